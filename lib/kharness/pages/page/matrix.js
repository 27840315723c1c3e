// The page of a matrix: who is better by the last recorded look, every cell by status, and the command that adds what is missing.

import { ago, h, number, replace, withUnit } from "../dom.js";
import { get, now, store } from "../net.js";
import { addressOf, change, view } from "../view.js";
import { command, differenceWords, plural, signOf, svg, verdictPill, when } from "./parts.js";
import { SweepParts } from "./sweep.js";

// So many comparisons are drawn before anybody asks for all.
const FIRST = 15;

// Seconds between two looks at a matrix whose runs train.
const EVERY = 2;

export class MatrixPage {
  constructor() {
    this.id = view.matrix;
    this.head = h("header", { class: "run-head" });
    this.body = h("div", { class: "tab matrix-page" });
    this.parts = {};
    this.texts = {};
    this.status = "";
    this.drawHead();
    this.load();
  }

  get elements() { return [this.head, this.body]; }

  close() {
    this.isClosed = true;
    clearTimeout(this.timer);
    this.sweep?.close();
  }

  async load() {
    if (this.isLoading) { this.isAsked = true; return; }
    this.isLoading = true;
    this.isAsked = false;
    try {
      this.content = await get("api/kharness/matrix", { id: this.id });
      this.problem = "";
    } catch (error) {
      this.problem = error.message;
    }
    if (this.isClosed) return;
    this.drawHead();
    this.draw();
    this.timer = setTimeout(() => {
      this.isLoading = false;
      if (this.isAsked && !document.hidden) this.load();
      else if (this.content?.runner) this.timer = setTimeout(() => { if (!document.hidden) this.load(); }, 3000 * EVERY);  // a runner dies without a word
    }, 1000 * EVERY);
  }

  // Replace a part only where what it shows has changed: scroll, focus and selection of the others stay.
  part(name, content, make) {
    const text = JSON.stringify(content);
    const place = this.parts[name] ??= h("div", { class: `part-${name}` });
    if (this.texts[name] === text) return place;
    this.texts[name] = text;
    replace(place, make() ?? []);
    return place;
  }

  drawHead() {
    const back = h("a", { href: "#", class: "small", onclick: (event) => { event.preventDefault(); change({ matrix: "" }, { isNewPage: true }); } }, "‹ all runs");
    const found = this.content;
    if (!found) {
      replace(this.head, back, h("p", { class: "empty" }, this.problem || "reading …"));
      return;
    }
    const look = found.look;
    const tiles = [];
    const tile = (label, value, note, kind = "") => tiles.push(h("div", { class: `tile ${kind}` }, h("span", { class: "label" }, label), h("span", { class: "value" }, value, note ? h("span", { class: "note" }, note) : null)));
    tile("Complete", number(found.statuses.complete ?? 0), `of ${plural(found.num_cells, "run")}`);
    const bad = Object.entries(found.statuses).filter(([status]) => signOf(status)[1] === "bad").reduce((sum, [, count]) => sum + count, 0);
    if (bad) tile("Need attention", number(bad), "", "bad");
    if (found.kind === "matrix") {
      tile("Seeds", number(found.seeds), found.next_look ? `next verdict at ${found.next_look}` : "of each variant");
      tile("Last look", look ? ago(look.recorded, now()) : "none", look ? (look.since ? `${plural(look.since, "run")} since` : "nothing new since") : "");
    }
    const runs = found.runner ? `run by ${found.runner}` : found.commands.continue ? "nobody runs it now" : "";
    const text = JSON.stringify([tiles.map((one) => one.textContent), this.problem, found.title, runs]);
    if (text === this.headText) return;
    this.headText = text;
    document.title = `${found.title} · kharness`;
    replace(this.head, h("div", { class: "title" }, back, h("h1", {}, found.title), h("span", { class: "pill" }, found.kind), h("span", { class: "soft small" }, [found.title.startsWith(`${found.model}: `) ? null : found.model, found.title === found.directory ? null : found.directory, `begun ${ago(found.created, now())}`, runs].filter(Boolean).join(", ")),
      h("a", { class: "small", href: addressOf({ matrix: "", run: "", sel: this.drawnRuns() }) }, "draw its runs")),
    this.problem || found.problem ? h("p", { class: "pill error" }, this.problem || found.problem) : null, h("div", { class: "tiles" }, tiles));
  }

  // Of each variant the first seed, as many as can be told apart.
  drawnRuns() {
    const cells = this.content.variants.map((variant) => variant.cells.find((cell) => cell.id)).filter(Boolean);
    return cells.slice(0, 16).map((cell) => cell.id);
  }

  draw() {
    const found = this.content;
    if (!found) return;
    const parts = [];
    if (found.sweep) {
      this.sweep ??= new SweepParts();
      parts.push(...this.sweep.draw(found));
    } else {
      parts.push(this.part("look", [found.look, found.seeds, found.next_look, found.commands, found.runner, this.isAll, this.problem, Math.floor(now() / 60)], () => this.verdicts(found)));
    }
    if (found.sweep) parts.push(this.part("trials", [found.variants, found.statuses], () => this.trials(found)));
    else parts.push(this.part("cells", [found.variants, found.statuses, this.status, this.wanted], () => this.cells(found)));
    parts.push(this.part("bad", found.variants.map((one) => one.cells.map((cell) => [cell.status, cell.reason, cell.known_failure])).concat([found.refused]), () => this.failures(found)));
    const old = [...this.body.children];
    if (old.length !== parts.length || parts.some((one, place) => old[place] !== one)) replace(this.body, parts);
  }

  // ------------------------------------------------------------- who is better

  verdicts(found) {
    const { look, commands } = found;
    const told = [];
    if (commands.continue && !found.runner) told.push(command(commands.continue, "run what is planned and not complete:"));
    if (found.runner) told.push(h("p", { class: "soft small" }, "It runs: a look is recorded when it ends."));
    else if (look ? look.since : found.statuses.complete) told.push(command(commands.record, look ? "record a look with the runs that have come since:" : "record a look at what is there:"));
    if (commands.seeds) told.push(command(commands.seeds, `add seeds up to the next verdict, at ${found.next_look}:`));
    const heading = h("h2", {}, "Who is better?");
    if (!look) {
      const due = found.next_look ? ` Verdicts begin at ${found.next_look} seeds; there are ${found.seeds}.` : "";
      return h("section", { class: "card", "aria-label": "who is better" }, heading, h("p", {}, `No look is recorded yet.${due}`), told);
    }
    const { comparisons, effects, unit } = look;
    const since = look.since ? `${plural(look.since, "run")} ${look.since === 1 ? "has" : "have"} come since and ${look.since === 1 ? "is" : "are"} in no verdict.` : "nothing has come since.";
    const caption = comparisons.length ? h("p", { class: "soft" }, `${look.metric} compared with ${look.baseline}, at ${plural(Math.min(...comparisons.map((one) => one.seeds)), "seed")}. Looked `, when(look.recorded), `; ${since} Reloading this page is no look.`) : h("p", { class: "soft" }, "Nothing is compared.");
    const notes = look.not_compared.map((note) => h("p", { class: "soft small" }, note));
    return h("section", { class: "card", "aria-label": "who is better" }, heading, caption, this.forest(comparisons, unit),
      effects.length ? [h("h3", {}, "Main effects, each the mean over the levels of the other axes"), this.forest(effects, unit, true)] : null, notes,
      look.explanation ? h("details", { class: "soft small" }, h("summary", {}, "what the verdicts mean"), h("p", {}, look.explanation.replaceAll("*", ""))) : null, told);
  }

  forest(comparisons, unit, isEffect = false) {
    if (!comparisons.length) return null;
    const order = { better: 0, "the same": 1, worse: 3 };
    const size = (one) => Math.abs(one.difference ?? 0);
    const sorted = [...comparisons].sort((a, b) => (order[a.verdict] ?? 2) - (order[b.verdict] ?? 2) || size(b) - size(a));
    const shown = this.isAll ? sorted : sorted.slice(0, FIRST);
    const edges = shown.flatMap((one) => [one.low ?? one.difference, one.high ?? one.difference]).filter((one) => typeof one === "number");
    const low = Math.min(0, ...edges), high = Math.max(0, ...edges), width = high - low || 1;
    const place = (value) => 4 + (192 * (value - low)) / width;
    const rows = shown.map((one) => {
      const kind = { better: "good", worse: "bad" }[one.verdict] ?? "soft";
      const words = differenceWords(one, unit);
      const picture = svg("svg", { class: `interval ${kind}`, viewBox: "0 0 200 24", preserveAspectRatio: "none", role: "img", "aria-label": words },
        svg("line", { class: "zero", x1: place(0), x2: place(0), y1: 0, y2: 24 }),
        typeof one.low === "number" ? svg("line", { class: "range", x1: place(one.low), x2: place(one.high), y1: 12, y2: 12 }) : null,
        typeof one.difference === "number" ? svg("line", { class: "middle", x1: place(one.difference), x2: place(one.difference), y1: 6, y2: 18 }) : null);
      const p = one.p_words ? `p ${one.p_words}` : typeof one.p_adjusted === "number" ? `p ${one.p_adjusted < 0.0001 ? "< 0.0001" : number(one.p_adjusted, 2)}` : "";
      const why = one.reason && !["better", "worse"].includes(one.verdict) ? one.reason : "";
      const since = one.since ? `${plural(one.since, "seed")} since` : "";
      const at = one.shown_at && one.shown_at < one.seeds ? `shown at ${one.shown_at} seeds` : "";
      const notes = [p, at, why, since, one.failures?.length ? `${plural(one.failures.length, "run")} not counted` : ""].filter(Boolean).join(" · ");
      return h("li", { class: "verdict" }, h("span", { class: "who" }, isEffect ? `${one.variant} vs ${one.baseline}` : one.variant), picture, h("span", { class: "number" }, words), h("span", {}, verdictPill(one.verdict)),
        h("span", { class: "soft small why" }, notes),
        one.sentence ? h("details", { class: "soft small whole" }, h("summary", {}, "in words"), one.sentence.replaceAll("**", "")) : null);
    });
    return [h("ul", { class: "verdicts" }, rows), sorted.length > shown.length ? h("button", { type: "button", onclick: () => { this.isAll = true; this.draw(); } }, `all ${sorted.length} comparisons`) : null];
  }

  // ------------------------------------------------------------- cells

  cells(found) {
    const seeds = [...new Set(found.variants.flatMap((one) => one.cells.map((cell) => cell.seed)))];
    const hasSeeds = seeds.some(Boolean);
    const metric = found.look?.metric;
    const wanted = (this.wanted ?? "").toLowerCase();
    const shown = found.variants.filter((one) => (!wanted || one.label.toLowerCase().includes(wanted)) && (!this.status || one.cells.some((cell) => cell.status === this.status)));
    const chips = Object.entries(found.statuses).map(([status, count]) => h("button", { type: "button", class: "chip", "aria-pressed": String(this.status === status), onclick: () => { this.status = this.status === status ? "" : status; this.draw(); } },
      h("span", { class: `cell small ${signOf(status)[1]}`, "aria-hidden": "true" }, signOf(status)[0]), ` ${number(count)} ${status}`));
    const find = found.variants.length > 12 ? h("input", { type: "search", placeholder: "Find a variant", "aria-label": "find a variant", value: this.wanted ?? "", oninput: (event) => {
      this.wanted = event.target.value;
      this.draw();
      const again = this.parts.cells.querySelector("input[type=search]");
      again?.focus();
      again?.setSelectionRange(again.value.length, again.value.length);
    } }) : null;
    const head = h("tr", {}, h("th", { scope: "col" }, "variant"), hasSeeds ? seeds.map((seed) => h("th", { scope: "col", class: "seed", title: `seed ${seed}` }, seed)) : h("th", { scope: "col" }, "run"),
      metric ? h("th", { scope: "col", class: "right" }, metric) : null);
    const rows = shown.map((variant) => {
      const bySeed = new Map();
      for (const cell of variant.cells) bySeed.set(cell.seed, [...(bySeed.get(cell.seed) ?? []), cell]);
      const numbers = found.look?.variants[variant.label]?.metrics[metric];
      return h("tr", {}, h("th", { scope: "row" }, variant.label), (hasSeeds ? seeds : [""]).map((seed) => h("td", { class: "seed" }, (bySeed.get(seed) ?? []).map((cell) => this.cell(cell, found)))),
        metric ? h("td", { class: "right number" }, numbers ? [withUnit(numbers.mean, found.look.unit), h("span", { class: "soft" }, numbers.std === null ? "" : ` ± ${found.look.unit === "fraction" ? number(100 * numbers.std, 2) : number(numbers.std, 2)}`, ` (${numbers.n})`)] : h("span", { class: "soft" }, "–")) : null);
    });
    return h("section", { class: "card", "aria-label": "cells" }, h("h2", {}, hasSeeds ? "Runs, by variant and seed" : "Runs"), h("div", { class: "bar" }, chips, h("span", { class: "grow" }), find),
      h("div", { class: "wide-table cells-scroll", tabindex: "0", role: "region", "aria-label": "runs by variant and seed" }, h("table", { class: "plain cells" }, h("thead", {}, head), h("tbody", {}, rows))));
  }

  // The trials of a sweep in the order of their planning.
  trials(found) {
    const cells = found.variants.flatMap((one) => one.cells).sort((a, b) => a.place - b.place);
    const counts = Object.entries(found.statuses).map(([status, count]) => `${number(count)} ${status}`).join(", ");
    return h("section", { class: "card", "aria-label": "trials" }, h("h2", {}, "Trials"), h("p", { class: "soft small" }, counts), h("div", { class: "flow" }, cells.map((cell) => this.cell(cell, found))));
  }

  cell(cell, found) {
    const [sign, kind] = signOf(cell.status);
    const value = found.look?.numbers[cell.name];
    const done = cell.status === "running" && cell.steps ? Math.floor((100 * (cell.step ?? 0)) / cell.steps) : null;
    const words = [cell.status, done === null ? "" : `${done} %`, value === undefined ? "" : `${found.look.metric} ${withUnit(value, found.look.unit)}`, cell.unstable ? "unstable: tried again" : "", cell.reason, cell.known_failure ? `known: ${cell.known_failure}` : ""].filter(Boolean).join(", ");
    const isDim = this.status && cell.status !== this.status;
    const properties = { class: `cell ${kind}${isDim ? " dim" : ""}`, title: `${cell.name}: ${words}`, "aria-label": `${cell.name}: ${words}` };
    const text = done === null ? (cell.unstable ? "✓*" : sign) : `${done}`;
    return cell.id ? h("a", { ...properties, href: addressOf({ matrix: "", run: cell.id, tab: kind === "bad" ? "log" : "charts", zoom: null }) }, text) : h("span", { ...properties, role: "img" }, text);
  }

  failures(found) {
    const cells = found.variants.flatMap((one) => one.cells).filter((cell) => ["bad", "warn"].includes(signOf(cell.status)[1]) || cell.unstable);
    if (!cells.length && !found.refused.length) return null;
    const rows = cells.slice(0, 200).map((cell) => h("tr", {}, h("th", { scope: "row" }, cell.id ? h("a", { href: addressOf({ matrix: "", run: cell.id, tab: "log", zoom: null }) }, cell.name) : cell.name), h("td", {}, h("span", { class: `pill ${signOf(cell.status)[1] === "bad" ? "failed" : "interrupted"}` }, cell.unstable ? "unstable" : cell.status)),
      h("td", {}, cell.reason || (cell.unstable ? `complete at attempt ${cell.attempts}` : "–"), cell.known_failure ? h("span", { class: "soft" }, ` known: ${cell.known_failure}`) : null)));
    const refused = found.refused.map((one) => h("tr", {}, h("th", { scope: "row" }, one.name), h("td", {}, h("span", { class: "pill" }, "refused")), h("td", {}, one.reason)));
    return h("section", { class: "card", "aria-label": "not complete" }, h("h2", {}, "Not complete, unstable, refused"), h("div", { class: "wide-table", tabindex: "0", role: "region", "aria-label": "table of runs that are not complete" }, h("table", { class: "plain" }, h("tbody", {}, rows, refused))));
  }

  // ------------------------------------------------------------- changes

  onRows(changed, isWhole) {
    const isOurs = isWhole || [...changed].some((id) => id.startsWith(`${this.id}/`));
    if (isOurs) this.load();
    else if (!this.content && store.isComplete) this.load();
  }

  onView(names) { if (names === null) this.draw(); }

  onKey() { return false; }
}


