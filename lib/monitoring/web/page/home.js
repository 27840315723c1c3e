// The first page: what runs, is it healthy, is it better; the table of runs, and the charts of those chosen.

import { panels, sections } from "./additions.js";
import { ago, dashes, duration, h, number, swatch, update, withUnit } from "./dom.js";
import { Board, boardBar } from "./board.js";
import { get, now, post, store } from "./net.js";
import { columns, columnTitle, everyColumn, groupings, hideRun, mainMetrics, RunTable, sorted, tellingOptions } from "./table.js";
import { change, view } from "./view.js";

// So many of the newest are drawn before anybody chooses, never all.
const NEWEST = 8;

export class Home {
  constructor() {
    this.matching = null;  // ids that the filter selects, null for all
    this.table = new RunTable({ onSelect: (id) => this.select(id), isSelected: (id) => this.chosen?.has(id) });
    this.tiles = h("div", { class: "tiles" });
    this.count = h("span", { class: "soft small" });
    this.all = h("input", { type: "checkbox", "aria-label": "draw all runs of the table, or none", onchange: () => this.selectAll() });
    this.hidden = h("button", { type: "button", class: "quiet small", title: "show them again", onclick: () => change({ hide: [] }) });
    this.group = h("select", { "aria-label": "group runs by", onchange: () => change({ group: this.group.value, closed: [] }) });
    this.menu = h("div", { class: "menu" });
    this.panel = h("section", { class: "pane bare", "aria-label": "Charts" });
    const left = h("section", { class: "pane table", "aria-label": "Runs" },
      h("div", { class: "bar" }, this.all, this.count, this.hidden, h("span", { class: "grow" }), this.group, this.menu), this.table.element);
    this.element = h("div", { class: "home" }, h("h1", { class: "hidden" }, "Runs"), left, this.panel);
    this.board = new Board({ runs: () => this.selected().map((id) => store.rows.get(id)).filter(Boolean) });
    this.sections = sections.map((Section) => new Section());
    this.drawMenu();
    this.rows();
    this.filter();
    this.drawPanel();
  }

  get elements() { return [this.tiles, ...this.sections.map((one) => one.element), this.element]; }

  close() {
    this.board.close();
    document.removeEventListener("click", this.outside);
  }

  // The runs that are drawn: those chosen, else the newest.
  selected() {
    if (view.sel) return view.sel.filter((id) => store.rows.has(id) && !view.hide.includes(id));
    const shown = this.shown ?? [];
    return [...shown].sort((a, b) => (b.started ?? 0) - (a.started ?? 0)).slice(0, NEWEST).map((row) => row.id);
  }

  select(id) {
    const selected = this.selected();
    change({ sel: selected.includes(id) ? selected.filter((one) => one !== id) : [...selected, id] });
  }

  selectAll() {
    const isAll = this.shown.every((row) => this.selected().includes(row.id));
    change({ sel: isAll ? [] : this.shown.map((row) => row.id) });
  }

  get visible() {
    const hidden = new Set(view.hide);
    return [...store.rows.values()].filter((row) => !hidden.has(row.id));
  }

  rows() {
    const rows = this.visible;
    const hidden = store.rows.size - rows.length;
    this.hidden.hidden = !hidden;
    this.hidden.textContent = `${hidden} hidden`;
    update(this.group, ["", ...new Set([...groupings(), ...(view.group ? [view.group] : [])])].map((name) => h("option", { value: name, "data-part": name }, name ? `by ${columnTitle(name)}` : "no groups")));
    this.group.value = view.group;
    const isAsking = !this.matching && view.where.trim();  // the filter is not answered yet
    this.shown = sorted(this.matching ? rows.filter((row) => this.matching.has(row.id)) : isAsking ? [] : rows);
    const selected = this.selected();
    this.chosen = new Set(selected);
    this.table.dashes = dashes(selected.map((id) => store.rows.get(id)?.run_id));
    this.table.show(this.shown);
    this.count.textContent = `${this.shown.length === rows.length ? "" : `${this.shown.length} of `}${rows.length} run${rows.length === 1 ? "" : "s"}, ${selected.length} drawn`;
    this.all.checked = selected.length > 0 && selected.length >= this.shown.length;
    this.all.indeterminate = selected.length > 0 && selected.length < this.shown.length;
    if (!store.rows.size) {
      const places = store.folders.map((folder) => h("div", {}, h("code", {}, folder)));
      this.table.body.replaceChildren(h("tr", {}, h("td", { colspan: "20" }, h("div", { class: "empty" }, store.isComplete ? "No run here yet. One that begins is shown by itself." : "reading …", places))));
    } else if (!this.shown.length) {
      this.table.body.replaceChildren(h("tr", {}, h("td", { colspan: "20" }, h("div", { class: "empty" }, isAsking ? "filtering …" : rows.length ? "No run fulfills the filter." : "All runs are hidden."))));
    }
    this.drawTiles();
  }

  drawTiles() {
    const rows = this.visible;
    const having = (...statuses) => rows.filter((row) => statuses.includes(row.status));
    const running = having("running");
    const bad = rows.filter((row) => row.errors || ["failed", "killed", "timeout", "unreadable"].includes(row.status));
    const left = running.map((row) => (row.left === null ? null : row.left - Math.max(0, now() - row.updated))).filter((one) => one !== null);
    const tile = (label, value, note, kind = "", where = null) => h(where === null ? "div" : "button", where === null ? { class: `tile ${kind}` } : { class: `tile ${kind}`, type: "button", title: `show these: ${where}`, onclick: () => setWhere(view.where === where ? "" : where) },
      h("span", { class: "label" }, label), h("span", { class: "value" }, String(value), note ? h("span", { class: "note" }, note) : null));
    const tiles = [
      tile("Running", running.length, left.length ? `last done in ${duration(Math.max(0, ...left))}` : "", "", "status=running"),
      tile("Need attention", bad.length, "", bad.length ? "bad" : "", "errors>0 or status=failed or status=killed or status=timeout or status=unreadable"),
      tile("Complete", having("complete").length, "", "", "status=complete"),
      this.verdict(rows),
    ];
    update(this.tiles, tiles);
  }

  // The best run by the first metric that says which way is better, and how far it is from the baseline.
  verdict(rows) {
    const name = mainMetrics().find((one) => store.metrics[one].better !== "neither" && !/^test/.test(one)) ?? null;
    if (name === null) return null;
    const { better, unit } = store.metrics[name];
    const measured = rows.filter((row) => typeof row.metrics[name] === "number");
    if (!measured.length) return null;
    const best = measured.reduce((a, b) => ((better === "up" ? b.metrics[name] > a.metrics[name] : b.metrics[name] < a.metrics[name]) ? b : a));
    const base = store.rows.get(view.base);
    let note = "pin a baseline with ☆ to compare";
    if (base && typeof base.metrics[name] === "number") {
      const difference = best.metrics[name] - base.metrics[name];
      note = base.id === best.id ? "this is the baseline" : `${difference > 0 ? "+" : "−"}${withUnit(Math.abs(difference), unit)} to the baseline ${base.name}; one run is no verdict`;
    }
    return h("div", { class: "tile wide" }, h("span", { class: "label" }, `Best newest ${name}`), h("span", { class: "value" }, withUnit(best.metrics[name], unit), " ", h("small", {}, swatch(best.run_id), ` ${best.name}`), h("span", { class: "note" }, note)));
  }

  drawMenu() {
    const list = h("div", { class: "list", hidden: true });
    const fill = () => {
      const shown = columns();
      const parts = Object.entries(everyColumn()).flatMap(([title, names]) => [h("h3", {}, title), ...names.map((name) => h("label", {}, h("input", { type: "checkbox", checked: shown.includes(name), onchange: (event) => {
        const rest = columns().filter((one) => one !== name);
        change({ cols: event.target.checked ? [...rest, name] : rest });
      } }), columnTitle(name)))]);
      list.replaceChildren(h("button", { type: "button", class: "quiet", onclick: () => { change({ cols: null }); fill(); } }, "as at first"), ...parts);
    };
    const button = h("button", { type: "button", "aria-expanded": "false", onclick: () => {
      list.hidden = !list.hidden;
      button.setAttribute("aria-expanded", String(!list.hidden));
      if (!list.hidden) fill();
    } }, "Columns");
    this.menu.replaceChildren(button, list);
    this.outside = (event) => {
      if (!this.menu.contains(event.target) && !list.hidden) { list.hidden = true; button.setAttribute("aria-expanded", "false"); }
    };
    document.addEventListener("click", this.outside);
  }

  drawPanel() {
    const tab = (name, title) => h("button", { type: "button", "aria-pressed": String(view.panel === name), onclick: () => change({ panel: name }) }, title);
    const tabs = [tab("charts", "Charts"), tab("differences", "Differences")];
    const seeds = h("button", { type: "button", "aria-pressed": String(view.seeds === "1"), title: "runs that differ in the seed alone as their mean, with the band from the lowest to the highest", onclick: () => change({ seeds: view.seeds ? "" : "1" }) }, "over seeds");
    if (view.panel === "differences") {
      const added = h("div", { class: "added" });
      this.panel.replaceChildren(h("div", { class: "bar" }, tabs), this.differences(added));
      this.addTo(added);
    } else {
      this.panel.replaceChildren(boardBar([...tabs, seeds]), this.board.element);
      this.board.update();
    }
  }

  async addTo(place) {
    const ids = this.selected().slice(0, 50);
    if (ids.length < 2) return;
    const parts = await Promise.all([...panels, ...(ids.length === 2 ? [lineByLine] : [])].map((make) => make(ids).catch(() => null)));
    place.replaceChildren(...parts.filter(Boolean));
  }

  differences(added) {
    const rows = this.selected().map((id) => store.rows.get(id)).filter(Boolean);
    const texts = (name) => rows.map((row) => (name in row.options ? String(row.options[name]) : "–"));
    const shown = (text) => h("td", { class: "value", title: text }, text.length > 9 && text.includes(".") && Number.isFinite(Number(text)) ? number(Number(text), 6) : text);
    const differing = tellingOptions().filter((name) => new Set(texts(name)).size > 1);
    if (rows.length < 2) return h("div", { class: "empty" }, "Choose at least two runs in the table.");
    const head = h("tr", {}, h("th", { scope: "col" }, "option"), rows.slice(0, 50).map((row) => h("th", { scope: "col" }, h("span", { class: "who" }, swatch(row.run_id), ` ${row.name}`))));
    const body = differing.map((name) => h("tr", {}, h("th", { scope: "row" }, name), texts(name).slice(0, 50).map(shown)));
    const metrics = Object.keys(store.metrics).filter((name) => store.metrics[name].better !== "neither" && store.metrics[name].kind === "result" && rows.some((row) => name in row.metrics));
    const numbers = metrics.map((name) => h("tr", {}, h("th", { scope: "row" }, name), rows.slice(0, 50).map((row) => h("td", { class: "value" }, withUnit(row.metrics[name], store.metrics[name].unit)))));
    return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "differences" }, h("table", { class: "plain" }, h("thead", {}, head), h("tbody", {}, body.length ? body : h("tr", {}, h("td", { colspan: "9" }, "Their options are the same.")), numbers)), added);
  }

  // Ask which runs fulfill the filter: the server has the one parser of its language.
  async filter() {
    const text = view.where.trim();
    const error = document.getElementById("where-error");
    if (!text) {
      this.matching = null;
      error.textContent = "";
      this.rows();
      this.board.update();
      return;
    }
    try {
      const found = await post("api/where", { where: text, at: view.at });
      if (text !== view.where.trim()) return;
      this.matching = new Set(found.ids);
      error.textContent = "";
    } catch (problem) {
      if (text !== view.where.trim()) return;
      error.textContent = problem.message + (problem.hint ? ` (${problem.hint})` : "");
      return;
    }
    this.rows();
    this.board.update();
  }

  onRows(changed, isWhole) {
    // whether the server answers, and what it cannot read, is told above the page
    const isAsBefore = !changed.size && !isWhole && this.wasComplete === store.isComplete;
    this.wasComplete = store.isComplete;
    if (isAsBefore) return;
    this.rows();
    for (const one of this.sections) one.onRows(changed, isWhole);
    if (view.where) {
      clearTimeout(this.waiting);
      this.waiting = setTimeout(() => this.filter(), 300);
    }
    if (view.panel === "differences") {
      if (isWhole || !store.isComplete || this.drawn !== this.selected().join()) this.drawPanel();
      this.drawn = this.selected().join();
      return;
    }
    const selected = new Set(this.selected());
    if (isWhole || [...changed].some((id) => selected.has(id)) || this.drawn !== [...selected].join()) {
      this.drawn = [...selected].join();
      this.board.update();
    }
  }

  onView(names) {
    const has = (...some) => names === null || some.some((name) => names.includes(name));
    if (has("where")) this.filter();
    if (has("sort", "cols", "base", "sel", "where", "hide", "group", "closed")) this.rows();
    if (has("panel", "log", "x", "xlog", "zoom", "seeds") || (has("sel", "hide") && view.panel === "differences")) this.drawPanel();
    else if (has("smooth")) this.board.draw();
    else if (has("sel", "hide", "fold", "big", "find")) this.board.update();
  }

  onKey(key) {
    if (key === "j") this.table.move(1);
    else if (key === "k") this.table.move(-1);
    else if (key === "x" || key === " ") { if (this.table.currentRow) this.select(this.table.currentRow.id); }
    else if (key === "b") { if (this.table.currentRow) change({ base: view.base === this.table.currentRow.id ? "" : this.table.currentRow.id }); }
    else if (key === "h") { if (this.table.currentRow) hideRun(this.table.currentRow.id); }
    else if (key === "Enter") { if (this.table.currentRow) change({ run: this.table.currentRow.id, tab: "charts", zoom: null }, { isNewPage: true }); }
    else return false;
    return true;
  }
}

// Two configurations as text, an option a line: what only the first says, what only the second.
async function lineByLine(ids) {
  const [first, second] = await Promise.all(ids.map((id) => get("api/run", view.at ? { id, at: view.at } : { id })));
  const names = [...new Set([...Object.keys(first.options), ...Object.keys(second.options)])].sort();
  const line = ({ options }, name) => (name in options ? `${name}=${JSON.stringify(options[name])}\n` : null);
  let same = 0;
  const lines = names.flatMap((name) => {
    const [was, is] = [line(first, name), line(second, name)];
    if (was === is) { same++; return h("span", { class: "soft" }, `  ${was}`); }
    return [was === null ? null : h("del", {}, `- ${was}`), is === null ? null : h("ins", {}, `+ ${is}`)];
  });
  return h("details", { class: "diff" }, h("summary", {}, `Configurations line by line: ${names.length - same} of ${names.length} options differ`),
    h("pre", { class: "log", tabindex: "0", "aria-label": "configurations line by line" }, lines));
}

export function setWhere(text) {
  document.getElementById("where").value = text;
  change({ where: text });
}

export const seen = (row) => ago(row.updated, now());
