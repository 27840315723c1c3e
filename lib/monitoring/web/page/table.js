// The table of runs: thousands of rows, of which only those in sight are drawn.

import { color, duration, h, number, swatch, update, withUnit } from "./dom.js";
import { addressOf, change, view } from "./view.js";
import { now, store } from "./net.js";

const ROW = 32;
const MOST_COLUMNS = 12;
const MAIN_METRICS = ["val_loss", "val_accuracy", "eval_loss", "eval/loss", "val/loss", "test_accuracy", "test_loss", "train_loss", "loss", "train/loss"];
const STATUS_ORDER = ["running", "queued", "killed", "timeout", "failed", "unreadable", "silent", "interrupted", "pending", "complete"];

// What is around a training, such as a matrix's axes or the trackers, says less of it than its own options.
const AROUND = /^(MATRIX|SWEEP|REPORT|LAUNCHER|ENABLE|TRACKER|ALERT|NOTIFY|GPU_MONITOR|MACHINE_MONITOR)/;

// A choice's members (OPTIMIZER_SGD=true) say what the choice (OPTIMIZER=sgd) says, and names say nothing.
export function tellingOptions() {
  const texts = store.options.filter((name) => valuesOf(name).some((value) => typeof value === "string"));
  return store.options.filter((name) => {
    const values = valuesOf(name);
    if (/(^|_)(RUN_NAME|RESULTS_DIR|DATA_DIR|OUTPUT_DIR|RUN_ID|PORT)$/i.test(name)) return false;
    return !(values.every((value) => typeof value === "boolean") && texts.some((text) => name.startsWith(`${text}_`)));
  });
}

function valuesOf(name) {
  const found = [];
  for (const row of store.rows.values()) {
    if (name in row.options) found.push(row.options[name]);
    if (found.length >= 200) break;
  }
  return found;
}

export function mainMetrics() {
  return MAIN_METRICS.filter((name) => name in store.metrics).slice(0, 4);
}

let known = { key: "", columns: [] };

export function columns() {
  if (view.cols) return view.cols;
  const key = `${store.epoch}:${store.rows.size}:${store.options.length}:${Object.keys(store.metrics).length}:${[...store.rows.values()].some((row) => row.tags)}`;
  if (known.key !== key) known = { key, columns: usualColumns() };
  return known.columns;
}

function usualColumns() {
  const options = tellingOptions();
  const rank = (name) => (AROUND.test(name) ? 3 : /seed/i.test(name) ? 2 : typeof valuesOf(name)[0] === "string" ? 0 : 1);
  options.sort((a, b) => rank(a) - rank(b));
  const tags = [...store.rows.values()].some((row) => row.tags) ? ["tags"] : [];
  return ["status", ...tags, ...options.slice(0, 5).map((name) => `o:${name}`), ...mainMetrics().flatMap((name) => (/^val|^eval/.test(name) ? [`m:${name}`, `b:${name}`] : [`m:${name}`])), "started"].slice(0, MOST_COLUMNS);
}

export function everyColumn() {
  return {
    Facts: ["status", "left", "started", "seconds", "step", "project", "group", "tags", "note", "host", "attempt"],
    Options: store.options.map((name) => `o:${name}`),
    "Newest values": Object.keys(store.metrics).map((name) => `m:${name}`),
    "Best values": Object.keys(store.metrics).filter((name) => store.metrics[name].better !== "neither").map((name) => `b:${name}`),
  };
}

export function columnTitle(column) {
  if (column.startsWith("b:")) return `best ${column.slice(2)}`;
  if (/^[om]:/.test(column)) return column.slice(2);
  return { left: "time left", seconds: "duration" }[column] ?? column;
}

export function value(row, column) {
  if (column.startsWith("o:")) return row.options[column.slice(2)];
  if (column.startsWith("m:")) return row.metrics[column.slice(2)];
  if (column.startsWith("b:")) return row.best?.[column.slice(2)];
  if (column === "status") return STATUS_ORDER.indexOf(row.status);
  if (column === "folder") return row.id.split("/").slice(0, -1).join("/");  // of a matrix, its runs
  return row[column];
}

export function sorted(rows) {
  const isDown = view.sort.startsWith("-");
  const column = isDown ? view.sort.slice(1) : view.sort;
  const sign = isDown ? -1 : 1;
  const keyed = rows.map((row) => [value(row, column), row]);
  keyed.sort(([a, one], [b, other]) => {
    const isMissing = (a === undefined || a === null) - (b === undefined || b === null);
    if (isMissing) return isMissing;  // what a run does not have is last, whichever way
    const order = typeof a === "number" && typeof b === "number" ? a - b : String(a ?? "").localeCompare(String(b ?? ""), undefined, { numeric: true });
    return sign * order || (other.started ?? 0) - (one.started ?? 0) || (one.id < other.id ? -1 : 1);
  });
  return keyed.map(([, row]) => row);
}

// What rows can be grouped by, and how a group of each is called.
export const groupings = () => ["folder", "group", "project", "status", ...tellingOptions().map((name) => `o:${name}`)];
const groupOf = (row) => { const own = view.group === "status" ? row.status : value(row, view.group); return own === undefined || own === null || own === "" ? "–" : String(own); };

// Rows by what they have in a column, each group where its first row is; of a closed one there is its head alone.
function grouped(rows) {
  if (!view.group) return rows;
  const groups = new Map();
  for (const row of rows) {
    const name = groupOf(row);
    if (!groups.has(name)) groups.set(name, []);
    groups.get(name).push(row);
  }
  return [...groups].flatMap(([head, own]) => [{ head, rows: own }, ...(view.closed.includes(head) ? [] : own)]);
}

// The mean of a group's runs.
function meanCell(rows, column) {
  const own = /^[mb]:/.test(column) ? rows.map((row) => value(row, column)).filter(Number.isFinite) : [];
  const mean = own.reduce((sum, one) => sum + one, 0) / own.length;
  return own.length ? h("td", { class: "right", title: `mean of ${own.length}` }, withUnit(mean, store.metrics[column.slice(2)]?.unit)) : h("td");
}

function metricCell(row, column) {
  const name = column.slice(2);
  const about = store.metrics[name] ?? {};
  const own = value(row, column);
  const cell = h("td", { class: "right", title: own === undefined ? "not near the journal's end" : `${own} ${about.unit ?? ""}` }, withUnit(own, about.unit));
  const base = view.base && view.base !== row.id ? store.rows.get(view.base) : null;
  const there = base ? value(base, column) : undefined;
  if (own !== undefined && there !== undefined && about.better && about.better !== "neither" && own !== there) {
    const isBetter = about.better === "up" ? own > there : own < there;
    const difference = own - there;
    cell.append(h("span", { class: `delta ${isBetter ? "good" : "bad"}`, title: "to the baseline" }, `${difference > 0 ? "+" : "−"}${withUnit(Math.abs(difference), about.unit)}`));
  }
  return cell;
}

export function statusCell(row) {
  const parts = [h("span", { class: `pill ${row.status}` }, row.status)];
  if (row.status === "running" && row.steps) {
    const done = Math.min(1, (row.step ?? 0) / row.steps);
    parts.push(h("progress", { max: 1, value: done, "aria-label": `${Math.round(100 * done)} % of ${row.steps} steps` }));
    parts.push(h("span", { class: "soft small number" }, row.left === null ? `${Math.round(100 * done)} %` : duration(Math.max(0, row.left - Math.max(0, now() - row.updated)))));
  }
  if (row.errors || row.warnings) {
    const kind = row.errors ? "error" : "warning";
    parts.push(h("span", { class: `pill ${kind}`, title: row.alert ?? "" }, `${row.errors || row.warnings} ${kind}${(row.errors || row.warnings) > 1 ? "s" : ""}`));
  }
  return h("td", {}, h("span", { class: "state" }, parts));
}

function cell(row, column) {
  if (column === "status") return statusCell(row);
  if (/^[mb]:/.test(column)) return metricCell(row, column);
  if (column.startsWith("o:")) {
    const own = value(row, column);
    return h("td", { class: typeof own === "number" ? "right" : "", title: own === undefined ? "" : String(own) }, own === undefined ? "–" : typeof own === "number" ? number(own, 6) : number(own));
  }
  if (column === "left" || column === "seconds") return h("td", { class: "right" }, duration(row[column]));
  if (column === "started") return h("td", { class: "soft", title: row.started ? new Date(1000 * row.started).toString() : "" }, row.started ? shortDate(row.started) : "–");
  if (column === "tags") return h("td", {}, tagPills(row));
  return h("td", { class: typeof row[column] === "number" ? "right" : "" }, number(row[column] ?? "–"));
}

export const tagPills = (row) => (row.tags ? row.tags.split(", ").map((tag) => h("span", { class: "pill tag" }, tag)) : []);

const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
const dayAndClock = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit" });

const shortDate = (time) => (Math.abs(now() - time) < 86400 ? clock : dayAndClock).format(1000 * time);

export class RunTable {
  constructor({ onSelect, isSelected }) {
    this.rows = [];
    this.current = 0;
    this.onSelect = onSelect;
    this.isSelected = isSelected;
    this.dashes = new Map();
    this.head = h("thead");
    this.body = h("tbody");
    this.table = h("table", { class: "runs", "aria-label": "Runs" }, this.head, this.body);
    this.element = h("div", { class: "scroll", tabindex: "-1" }, this.table);
    this.element.addEventListener("scroll", () => this.draw(), { passive: true });
    new ResizeObserver(() => this.draw()).observe(this.element);
    this.shown = "";
  }

  show(rows) {
    this.rows = grouped(rows);
    const shown = columns();
    const heading = (column, title, extra = "") => {
      const isSorted = view.sort.replace("-", "") === column;
      const isNumber = /^[mb]:/.test(column) || ["left", "seconds", "step"].includes(column) || (column.startsWith("o:") && rows.length && typeof value(rows[0], column) === "number");
      return h("th", { scope: "col", class: `${extra}${isNumber ? " right" : ""}`, "aria-sort": isSorted ? (view.sort.startsWith("-") ? "descending" : "ascending") : null },
        h("button", { type: "button", title: `sort by ${title}`, onclick: () => change({ sort: view.sort === column ? `-${column}` : column }) }, title));
    };
    const head = JSON.stringify([shown, view.sort]);
    if (head !== this.drawnHead) {
      this.drawnHead = head;
      this.head.replaceChildren(h("tr", {}, heading("name", "name", "pinned"), shown.map((column) => heading(column, columnTitle(column)))));
    }
    this.table.setAttribute("aria-rowcount", this.rows.length + 1);
    this.drawn = null;
    this.draw();
  }

  draw() {
    const height = this.element.clientHeight || 600;
    const first = Math.max(0, Math.floor(this.element.scrollTop / ROW) - 8);
    const last = Math.min(this.rows.length, first + Math.ceil(height / ROW) + 18);
    const range = `${first}:${last}`;
    if (range === this.drawn) return;
    this.drawn = range;
    const shown = columns();
    const spacer = (count, part) => {
      const own = h("td", { colspan: String(shown.length + 1) });
      own.style.height = `${count * ROW}px`;
      return count ? h("tr", { class: "spacer", "aria-hidden": "true", "data-part": part }, own) : null;
    };
    const rows = [];
    for (let place = first; place < last; place++) rows.push(this.row(this.rows[place], place, shown));
    update(this.body, spacer(first, "above"), ...rows, spacer(this.rows.length - last, "below"));
  }

  row(row, place, shown) {
    if (row.head !== undefined) return this.group(row, place, shown);
    const isOn = this.isSelected(row.id);
    const isBase = view.base === row.id;
    const check = h("input", { type: "checkbox", checked: isOn, "aria-label": `show ${row.name} in the charts`, onchange: () => this.onSelect(row.id) });
    check.dataset.part = "check";
    if (isOn) check.style.accentColor = color(row.run_id);
    const link = h("a", { href: addressOf({ run: row.id, tab: "charts", zoom: null }), title: row.problem ? `${row.id}: ${row.problem}` : row.id }, h("bdi", {}, row.name));
    link.dataset.part = "link";
    const star = h("button", { type: "button", class: "quiet", "aria-pressed": String(isBase), title: isBase ? "no longer the baseline" : "compare others with this run", "aria-label": `baseline: ${row.name}`, onclick: () => change({ base: view.base === row.id ? "" : row.id }) }, isBase ? "★" : "☆");
    star.dataset.part = "star";
    const hide = h("button", { type: "button", class: "quiet hide", title: "hide it in table, charts and address (h)", "aria-label": `hide ${row.name}`, onclick: () => hideRun(row.id) }, "⊘");
    hide.dataset.part = "hide";
    const name = h("td", { class: "pinned" }, h("span", { class: "who" }, check, swatch(row.run_id, isOn, this.dashes.get(row.run_id)), link, hide, star));
    const element = h("tr", { class: place === this.current ? "current" : "", "aria-rowindex": String(place + 2) }, name, shown.map((column) => cell(row, column)));
    element.dataset.id = row.id;
    return element;
  }

  group({ head, rows }, place, shown) {
    const isOpen = !view.closed.includes(head);
    const toggle = h("button", { type: "button", class: "quiet", "aria-expanded": String(isOpen), title: `${isOpen ? "close" : "open"} the group`,
      onclick: () => change({ closed: view.closed.includes(head) ? view.closed.filter((one) => one !== head) : [...view.closed, head] }) }, h("bdi", {}, `${isOpen ? "▾" : "▸"} ${head}`), h("span", { class: "soft" }, ` ${rows.length}`));
    toggle.dataset.part = "toggle";
    const element = h("tr", { class: "group", "aria-rowindex": String(place + 2) }, h("td", { class: "pinned" }, toggle), shown.map((column) => meanCell(rows, column)));
    element.dataset.id = `group ${head}`;
    return element;
  }

  move(by) {
    let place = this.current + by;
    while (this.rows[place]?.head !== undefined) place += by;
    if (!this.rows[place]) return;
    this.current = place;
    const top = this.current * ROW;
    const { scrollTop, clientHeight } = this.element;
    if (top < scrollTop) this.element.scrollTop = top;
    else if (top + 2 * ROW > scrollTop + clientHeight) this.element.scrollTop = top + 2 * ROW - clientHeight;
    this.drawn = null;
    this.draw();
  }

  get currentRow() { return this.rows[this.current]?.head === undefined ? this.rows[this.current] : undefined; }
}

export const hideRun = (id) => change({ hide: [...view.hide, id] });
