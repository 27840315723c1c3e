// A click on a column's title sorts its table; a second click turns the order round. Without a script the
// tables are in the order of the plan.
"use strict";

// "98.50 ± 0.07" sorts by its mean and "44/60" by what was done; what was not measured comes last.
function keyOf(row, column, words) {
  const text = row.cells[column].textContent.trim();
  return words ? text : Number.parseFloat(text.replaceAll(",", ""));
}

function compare(a, b, words) {
  if (words) return a.localeCompare(b, "en", { numeric: true });
  return a - b;
}

function sortBy(table, heading) {
  const column = heading.cellIndex;
  const words = heading.classList.contains("words");
  const down = heading.getAttribute("aria-sort") === "ascending";
  const body = table.tBodies[0];
  const keyed = Array.from(body.rows, (row) => [keyOf(row, column, words), row]);
  const missing = ([key]) => (words ? key === "-" || key === "" : Number.isNaN(key));
  const present = keyed.filter((entry) => !missing(entry));
  present.sort(([a], [b]) => (down ? compare(b, a, words) : compare(a, b, words)));
  body.append(...[...present, ...keyed.filter(missing)].map(([, row]) => row));
  for (const other of heading.parentElement.cells) other.removeAttribute("aria-sort");
  heading.setAttribute("aria-sort", down ? "descending" : "ascending");
}

for (const table of document.querySelectorAll("table.sortable")) {
  for (const heading of table.tHead.rows[0].cells) {
    heading.querySelector("button").addEventListener("click", () => sortBy(table, heading));
  }
}

// Paper cannot be unfolded.
window.addEventListener("beforeprint", () => {
  for (const details of document.querySelectorAll("details")) details.open = true;
});
