// Begins the page: chooses what is shown by the address, and passes on changes, views and keys.

import { pageOf } from "./additions.js";
import { ago, date, duration, h, replace, save, say } from "./dom.js";
import { Home, setWhere } from "./home.js";
import { Moment } from "./moment.js";
import { kept } from "./kept.js";
import { begin, fileOf, now, onRows, pastRows, store } from "./net.js";
import { RunPage } from "./run.js";
import { change, onView, readAddress, view } from "./view.js";
import { openViews } from "./views.js";

const main = document.getElementById("main");
const where = document.getElementById("where");
const live = document.getElementById("live");
const problems = document.getElementById("problems");
const help = document.getElementById("help");

const moment = new Moment(document.getElementById("moment"));
document.getElementById("moment-button").addEventListener("click", () => moment.toggle());

let shown = null;
let shownPlace = null;

function show() {
  const [name, Page] = view.run ? ["run", RunPage] : pageOf(view) ?? ["", Home];
  const place = `${name} ${view[name] ?? ""}`;
  if (shown && shownPlace === place) return false;
  shown?.close();
  shownPlace = place;
  document.title = "kharness";
  shown = new Page();
  replace(main, shown.elements);
  return true;
}

// The view as a file of its own, which shows the same without the server.
async function saveView() {
  say("the view is being saved …");
  try {
    save(`${document.title.replace(" · kharness", "")}.html`, await fileOf("api/alone", { address: location.hash }));
    say("saved: a file that works without the server");
  } catch (error) {
    say(error.message);
  }
}

function tell() {
  if (kept) { live.textContent = `as saved ${date(kept.saved)}`; return; }
  const running = [...store.live.values()].filter((row) => row.status === "running").length;
  live.className = `live ${store.isLost ? "off" : store.isLive ? "on" : ""}`;
  live.textContent = store.isLost ? store.lostWhy : !store.isComplete ? "reading …" : view.at ? "as it was" : store.isLive ? (running ? `live, ${running} running` : "live") : "every 5 s";
  const told = store.isLost ? [`${store.lostWhy}; what is shown may be old`] : store.problems;
  problems.hidden = !told.length;
  problems.textContent = told.join(" · ");
}

const KEYS = [
  ["j k", "next and previous run"], ["Enter", "open the run"], ["x", "draw it, or not"], ["b", "make it the baseline"], ["h", "hide it everywhere"], ["/", "filter"],
  ["s", "smoothing: off, 0.6, 0.9"], ["l", "logarithmic axis"], ["Esc", "whole range; back to all runs"], ["[ ]", "other part of a run's page"], ["c", "copy the point under the pointer"], ["t", "time: how runs stood at a moment"], ["?", "this help"],
];
const WORDS = [
  ["optimizer=adamw", "an option; CONFIG_ and letters' case do not matter"], ["val_loss<0.4", "the newest value of a metric; best.val_loss its best"],
  ["status=running", "or failed, complete, killed, silent, interrupted"], ["name~lenet", "contains; !~ does not; a word alone means the name"],
  ["lr>=1e-3 and (adamw or not seed=1)", "and, or, not, brackets"],
];

function openHelp() {
  const rows = (pairs) => h("table", {}, h("tbody", {}, pairs.map(([key, text]) => h("tr", {}, h("td", {}, h("kbd", {}, key)), h("td", {}, text)))));
  help.replaceChildren(h("h2", { id: "help-title" }, "Keys"), rows(KEYS), h("h2", {}, "Filter"), rows(WORDS),
    h("p", { class: "soft small" }, "Drag in a chart to zoom all of them; a double click shows everything again. The address holds the view."), h("form", { method: "dialog" }, h("button", { class: "primary" }, "Close")));
  help.showModal();
}

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  const isTyping = event.target.matches("input:not([type=checkbox]):not([type=range]), select, textarea");
  if (isTyping) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  const isOnControl = event.target.matches("button, a, summary, input");
  if (isOnControl && (event.key === "Enter" || event.key === " ")) return;
  if (event.key === "/") where.focus();
  else if (event.key === "?") openHelp();
  else if (event.key === "t") moment.toggle();
  else if (event.key === "l") change({ log: view.log === "1" ? "" : "1" });
  else if (event.key === "s") {
    change({ smooth: view.smooth === 0 ? 0.6 : view.smooth < 0.9 ? 0.9 : 0 });
    const slider = document.getElementById("smooth");
    if (slider) { slider.value = String(view.smooth); slider.nextElementSibling.textContent = view.smooth ? view.smooth.toFixed(2) : "off"; }
  } else if (event.key === "c") [...(shown.board?.charts.values() ?? [])].find((chart) => chart.element.matches(":hover"))?.copyHovered();
  else if (event.key === "Escape") {
    if (view.zoom) change({ zoom: null });
    else if (view.run || view.matrix) change({ run: "", matrix: "" }, { isNewPage: true });
    else return;
  } else if (!shown.onKey(event.key)) return;
  event.preventDefault();
}

// The token came with the address; the browser has it as a cookie now.
if (new URLSearchParams(location.search).has("token")) history.replaceState(null, "", location.pathname + location.hash);

if (kept) {
  if (!location.hash) location.hash = kept.address;
  where.disabled = true;
  for (const id of ["moment-button", "views-button", "save-button"]) document.getElementById(id).hidden = true;
}
readAddress();
where.value = view.where;
let typing = 0;
where.addEventListener("input", () => {
  clearTimeout(typing);
  typing = setTimeout(() => change({ where: where.value }), 150);
});
document.querySelector(".filter").addEventListener("submit", (event) => { event.preventDefault(); change({ where: where.value, run: "", matrix: "" }); });
document.getElementById("help-button").addEventListener("click", openHelp);
document.getElementById("views-button").addEventListener("click", openViews);
document.getElementById("save-button").addEventListener("click", saveView);
document.querySelector(".brand").addEventListener("click", (event) => {
  event.preventDefault();
  setWhere("");
  change({ run: "", matrix: "", zoom: null }, { isNewPage: true });
});
document.addEventListener("keydown", onKey);
onView((names) => {
  moment.draw();
  if (!show()) shown.onView(names);
  if (names === null || names.includes("at")) pastRows();
});
onRows((changed, isWhole) => { tell(); moment.draw(); shown?.onRows(changed, isWhole); });
document.addEventListener("click", (event) => {
  const link = event.target.closest?.("a[href^='#']");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.defaultPrevented) return;
  event.preventDefault();
  history.pushState(null, "", location.pathname + link.getAttribute("href"));
  dispatchEvent(new PopStateEvent("popstate"));
});
show();
begin();
setInterval(() => { if (!document.hidden && shown instanceof Home && store.rows.size) shown.drawTiles(); }, 5000);
window.kharness = { view, store, change, now, ago, duration, get shown() { return shown; } };  // for tests and the curious
