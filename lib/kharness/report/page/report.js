// A click on a column's title sorts its table; a second click turns the order round. Without a script the
// tables are in the order of the plan.
"use strict";

const isMissing = (text) => text === "-" || text === "";

// "98.50 ± 0.07" sorts by its mean and "44/60" by what was done; what was not measured comes last.
function keyOf(text, words) {
  return words ? text : Number.parseFloat(text.replaceAll(",", ""));
}

function compare(a, b, words) {
  if (words) return a.localeCompare(b, "en", { numeric: true });
  return a - b;
}

function sortBy(table, heading) {
  const column = heading.cellIndex;
  const textOf = (row) => row.cells[column].textContent.trim();
  const rows = Array.from(table.tBodies[0].rows);
  // The values of an axis may all be numbers, as in 1e-4, 0.003, 0.05.
  const numbers = rows.every((row) => isMissing(textOf(row)) || Number.isFinite(Number(textOf(row))));
  const words = heading.classList.contains("words") && !numbers;
  const down = heading.getAttribute("aria-sort") === "ascending";
  const keyed = rows.map((row) => [keyOf(textOf(row), words), row]);
  const missing = ([key]) => (words ? isMissing(key) : Number.isNaN(key));
  const present = keyed.filter((entry) => !missing(entry));
  present.sort(([a], [b]) => (down ? compare(b, a, words) : compare(a, b, words)));
  table.tBodies[0].append(...[...present, ...keyed.filter(missing)].map(([, row]) => row));
  for (const other of heading.parentElement.cells) other.removeAttribute("aria-sort");
  heading.setAttribute("aria-sort", down ? "descending" : "ascending");
}

for (const table of document.querySelectorAll("table.sortable")) {
  for (const heading of table.tHead.rows[0].cells) {
    heading.querySelector("button").addEventListener("click", () => sortBy(table, heading));
  }
}

// Say of a box that scrolls that there is more in it: phones show no scroll bars.
const boxes = Array.from(document.querySelectorAll(".scroll, figure:not(.plot)"));

function showWhatIsHidden() {
  for (const box of boxes) {
    const hidden = box.scrollWidth - box.clientWidth;
    box.classList.toggle("wide", hidden > 1);
    box.classList.toggle("goes-on", hidden - box.scrollLeft > 1);
  }
}

for (const box of boxes) box.addEventListener("scroll", showWhatIsHidden, { passive: true });
window.addEventListener("resize", showWhatIsHidden);
window.addEventListener("load", showWhatIsHidden);

// On a phone a graph is as wide as the screen; its small print is read enlarged.
for (const button of document.querySelectorAll("figcaption button")) {
  button.addEventListener("click", () => {
    const enlarged = button.closest("figure").classList.toggle("enlarged");
    button.setAttribute("aria-pressed", String(enlarged));
    button.textContent = enlarged ? "fit to the screen" : "enlarge";
    showWhatIsHidden();
  });
}

// Paper cannot be unfolded.
window.addEventListener("beforeprint", () => {
  for (const details of document.querySelectorAll("details")) details.open = true;
});

// The values of all lines under the pointer. A path has its points in thousandths of the frame.
function valueAt(svg, place) {
  const [low, high, ...kind] = svg.dataset.y.split(" ");
  const [a, b] = [Number(low), Number(high)];
  if (kind.join(" ") === "log") return a * (b / a) ** place;
  if (kind.join(" ") === "log error") return 100 - (100 - a) * ((100 - b) / (100 - a)) ** place;
  return a + (b - a) * place;
}

function pointsOf(path) {
  const numbers = path.getAttribute("d").match(/\d+/g).map(Number);
  return numbers.flatMap((x, i) => (i % 2 ? [] : [[x, numbers[i + 1]]]));
}

const shortly = (value) => Number(value.toPrecision(3)).toLocaleString("en", { maximumSignificantDigits: 3 });

for (const svg of document.querySelectorAll(".plot svg")) {
  const lines = Array.from(svg.querySelectorAll(".mean:not(.dots)"), (path) => [path.dataset.label, path]);
  if (!lines.length) continue;
  const box = document.createElement("span");
  box.className = "at";
  const hide = () => box.remove();
  svg.parentElement.addEventListener("pointerleave", hide);
  svg.parentElement.addEventListener("pointermove", (event) => {
    const frame = svg.getBoundingClientRect();
    const x = (1000 * (event.clientX - frame.left)) / frame.width;
    if (x < 0 || x > 1000) return hide();
    const [low, high] = svg.dataset.x.split(" ").map(Number);
    const rows = lines.map(([label, path]) => {
      const nearest = pointsOf(path).reduce((a, b) => (Math.abs(b[0] - x) < Math.abs(a[0] - x) ? b : a));
      return [label, shortly(valueAt(svg, 1 - nearest[1] / 1000))].filter(Boolean).join("  ");
    });
    const at = low + ((high - low) * x) / 1000;
    const where = high - low > 20 ? Math.round(at).toLocaleString("en") : shortly(at);
    box.textContent = [where, ...rows].join("\n");
    box.style.left = `${x / 10}%`;
    box.style.transform = x > 600 ? "translateX(-105%)" : "translateX(0.6rem)";
    svg.parentElement.append(box);
  });
}
