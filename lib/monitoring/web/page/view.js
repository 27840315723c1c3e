// What is looked at stands in the address, whole: a reload, a bookmark and a colleague see the same.

const TEXTS = { where: "", sort: "-started", run: "", matrix: "", tab: "charts", x: "step", base: "", find: "", log: "", xlog: "", panel: "charts", seeds: "", group: "" };
const LISTS = ["sel", "fold", "cols", "big", "hide", "closed"];

export const view = { ...TEXTS, smooth: 0, zoom: null, at: null, sel: null, fold: [], cols: null, big: [], hide: [], closed: [] };

const listeners = [];
export const onView = (listener) => listeners.push(listener);

export function readAddress() {
  const given = new URLSearchParams(location.hash.slice(1));
  for (const [name, start] of Object.entries(TEXTS)) view[name] = given.get(name) ?? start;
  for (const name of LISTS) view[name] = given.has(name) ? given.getAll(name).filter(Boolean) : (name === "sel" || name === "cols" ? null : []);
  const smooth = Number(given.get("smooth"));
  view.smooth = smooth >= 0 && smooth < 1 ? smooth : 0;
  const at = Number(given.get("at"));
  view.at = at > 0 ? at : null;
  const zoom = (given.get("zoom") ?? "").split("..").map(Number);
  view.zoom = zoom.length === 2 && zoom.every(Number.isFinite) && zoom[0] < zoom[1] ? zoom : null;
}

function address() {
  const shown = new URLSearchParams();
  for (const [name, start] of Object.entries(TEXTS)) if (view[name] !== start) shown.set(name, view[name]);
  for (const name of LISTS) {
    if (view[name] === null || (view[name].length === 0 && name !== "sel" && name !== "cols")) continue;
    if (view[name].length === 0) shown.append(name, "");
    for (const one of view[name]) shown.append(name, one);
  }
  if (view.smooth) shown.set("smooth", String(view.smooth));
  if (view.at) shown.set("at", String(Math.round(10 * view.at) / 10));
  if (view.zoom) shown.set("zoom", view.zoom.map((edge) => Number(edge.toPrecision(8))).join(".."));
  return "#" + shown.toString().replaceAll("%2F", "/").replaceAll("%2C", ",");
}

export function change(values, { isNewPage = false } = {}) {
  Object.assign(view, values);
  history[isNewPage ? "pushState" : "replaceState"](null, "", location.pathname + address());
  for (const listener of listeners) listener(Object.keys(values));
}

export function addressOf(values) {
  const before = { ...view };
  Object.assign(view, values);
  const found = address();
  Object.assign(view, before);
  return found;
}

addEventListener("popstate", () => {
  readAddress();
  for (const listener of listeners) listener(null);
});
addEventListener("hashchange", () => {
  const now = address();
  readAddress();
  if (address() !== now) for (const listener of listeners) listener(null);
});
