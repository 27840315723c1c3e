// The charts of some runs, by group: drawn when they come into sight, fetched together, zoomed together.

import { dashes, h, number, say, save } from "./dom.js";
import { Chart } from "./chart.js";
import { kept } from "./kept.js";
import { post, store } from "./net.js";
import { overSeeds } from "./seeds.js";
import { change, view } from "./view.js";

const ORDER = ["Training", "Validation", "Results", "Speed", "Memory", "GPU", "Machine", "Balance between ranks", "Activations", "Other"];
const HIDDEN = new Set(["nan_inf_detected", "best", "epoch", "skipped"]);
const MARGIN = 150;  // pixels above and below the window in which charts count as seen
const FIRST = ["train_loss", "loss", "train/loss", "val_loss", "val_accuracy", "eval_loss", "lr", "grad_norm"];

const SOON_BUCKETS = 100;  // of several runs' first picture: fewer are sooner computed, sent and drawn

const keyOf = ({ run, metric, key }) => JSON.stringify([run, metric, key]);

export function groupOf(name, about) {
  if (about.of === "end") return "Results";
  if (/^(gpu|GPU)[_/ ]/.test(name) || /^gpu/.test(name)) return /^gpu_mem_/.test(name) ? "Memory" : "GPU";
  if (/^(rank\d|load_balance|imbalance)/.test(name)) return "Balance between ranks";
  if (/^(activation_|attention_entropy)/.test(name)) return "Activations";
  if (/^(val|valid|validation|eval|test)([_/ ]|$)/.test(name) || /^batch_\d+_/.test(name) && about.kind === "result") return "Validation";
  if (/^(cpu|host|disk|net|system|machine|ram|swap)[_/ ]/.test(name)) return /mem|rss/.test(name) ? "Memory" : "Machine";
  if (/mem|rss|_mb$|_gb$/i.test(name)) return "Memory";
  if (about.kind === "wall time" || /per_sec|_seconds$|sec_per|mfu|hfu|flops|throughput|latency/i.test(name)) return "Speed";
  if (name.includes("/")) return name.split("/")[0];
  return about.kind === "machine" ? "Machine" : about.kind === "result" || !about.kind ? "Training" : "Other";
}

export class Board {
  // runs(): rows to draw; marks(metric): alerts; limits for a page of one run.
  constructor({ runs, marks = () => [] }) {
    this.runs = runs;
    this.marks = marks;
    this.charts = new Map();  // metric -> Chart
    this.visible = new Set();
    this.known = new Map();  // run -> metrics of it
    this.answered = new Set();  // runs whose first picture was asked for, also those that have recorded nothing yet
    this.isBusy = false;
    this.isAskedAgain = false;
    this.drawn = new Promise((done) => { this.hasDrawn = done; });  // kept once there was a first picture
    this.element = h("div", { class: "scroll board" });
    this.empty = h("div", { class: "empty" });
    this.observer = new IntersectionObserver((entries) => {
      for (const entry of entries) {
        const metric = entry.target.dataset.metric;
        if (entry.isIntersecting) this.visible.add(metric);
        else this.visible.delete(metric);
      }
      this.fetch();
    }, { rootMargin: `${MARGIN}px` });
    this.sizes = new ResizeObserver((entries) => {
      for (const entry of entries) this.charts.get(entry.target.closest(".chart")?.dataset.metric)?.resize();
    });
    this.scheme = matchMedia("(prefers-color-scheme: dark)");
    this.repaint = () => this.draw();
    this.scheme.addEventListener("change", this.repaint);
  }

  close() {
    this.isClosed = true;
    this.scheme.removeEventListener("change", this.repaint);
    this.observer.disconnect();
    this.sizes.disconnect();
    for (const chart of this.charts.values()) chart.forget();
  }

  // The runs, the axis, or the metrics in them may have changed.
  update() {
    this.layOut();
    this.fetch();
  }

  metrics() {
    const found = new Map();
    for (const row of this.runs()) {
      const own = this.known.get(row.id) ?? Object.fromEntries(Object.keys(row.metrics).map((name) => [name, { keys: [0], ...store.metrics[name] }]));
      for (const [name, about] of Object.entries(own)) {
        if (!HIDDEN.has(name) && !found.has(name)) found.set(name, about);
      }
    }
    const wanted = view.find.toLowerCase();
    return [...found].filter(([name]) => !wanted || name.toLowerCase().includes(wanted));
  }

  layOut() {
    const groups = new Map();
    for (const [name, about] of this.metrics()) {
      const group = groupOf(name, about);
      if (!groups.has(group)) groups.set(group, []);
      groups.get(group).push([name, about]);
    }
    const place = (name) => (ORDER.indexOf(name) + 1 || 6.5);
    const rank = (name) => (FIRST.indexOf(name) + 1 || 99);
    const order = [...groups].sort(([a], [b]) => place(a) - place(b) || a.localeCompare(b));
    for (const [, metrics] of order) metrics.sort(([a], [b]) => rank(a) - rank(b) || a.localeCompare(b, undefined, { numeric: true }));
    const plan = JSON.stringify([order.map(([group, metrics]) => [group, metrics.map(([name]) => name)]), view.fold, view.big]);
    this.empty.textContent = this.runs().length ? (view.find ? `no metric contains “${view.find}”` : "no metric has been recorded yet") : "Choose runs in the table to draw them.";
    if (plan === this.plan) return;
    this.plan = plan;
    const parts = order.map(([group, metrics]) => {
      const isOpen = !view.fold.includes(group);
      const title = h("h2", {}, h("button", { type: "button", "aria-expanded": String(isOpen), onclick: () => change({ fold: isOpen ? [...view.fold, group] : view.fold.filter((one) => one !== group) }) }, `${group} `, h("span", { class: "soft" }, String(metrics.length))));
      return h("section", { class: "group", "aria-label": group }, title, isOpen ? h("div", { class: "charts" }, metrics.map(([name, about]) => this.chart(name, about).element)) : null);
    });
    const top = this.element.scrollTop;
    this.element.replaceChildren(...(parts.length ? parts : [this.empty]));
    this.element.scrollTop = top;
    const shown = new Set([...this.element.querySelectorAll(".chart")].map((one) => one.dataset.metric));
    for (const [name, chart] of this.charts) if (!shown.has(name)) this.drop(name, chart);
    this.look();
  }

  // What is in sight now: the observer says so a picture later, and of all changes.
  look() {
    for (const [name, { element }] of this.charts) {
      const { top, bottom, width } = element.getBoundingClientRect();
      if (width && bottom > -MARGIN && top < innerHeight + MARGIN) this.visible.add(name);
    }
  }

  drop(name, chart) {
    this.observer.unobserve(chart.element);
    this.visible.delete(name);
    chart.forget();
    this.charts.delete(name);
  }

  chart(name, about) {
    let chart = this.charts.get(name);
    if (!chart) {
      chart = new Chart(name, { ...about, about: about.about ?? store.metrics[name]?.about }, {
        zoom: (edges) => change({ zoom: edges }),
        csv: (one) => this.saveCsv(one),
        enlarge: (one) => change({ big: view.big.includes(one.metric) ? view.big.filter((other) => other !== one.metric) : [...view.big, one.metric] }),
      });
      this.charts.set(name, chart);
      this.observer.observe(chart.element);
      this.sizes.observe(chart.plotPlace);
    }
    chart.element.classList.toggle("big", view.big.includes(name));
    return chart;
  }

  wanted(names) {
    const found = [];
    const runs = this.runs();
    for (const row of runs) {
      const own = this.known.get(row.id);
      if (!own && !names.length) found.push({ run: row.id, metric: "" });  // which metrics has it?
      for (const metric of names) {
        if (own && !(metric in own)) continue;
        const keys = own?.[metric]?.keys ?? [0];
        // of several runs the first rank of each: to compare is one thing, to look into one run another
        for (const key of keys.slice(0, runs.length > 1 ? 1 : 64)) found.push({ run: row.id, metric, key });
      }
    }
    return found.slice(0, 2000);
  }

  async ask(series, buckets, soon = false) {
    const [lo, hi] = view.zoom ?? [null, null];
    return post("api/series", { x: view.x, log_x: view.xlog === "1", lo, hi, buckets, soon, at: view.at, series });
  }

  // One request for everything in sight; what is asked for meanwhile is asked once more after it.
  async fetch() {
    if (this.isBusy) { this.isAskedAgain = true; return; }
    const runs = this.runs();
    const names = [...this.visible].filter((name) => this.charts.has(name));
    if (this.isClosed || !runs.length || (!names.length && this.known.size)) { this.draw(); return; }
    this.isBusy = true;
    let isMore = false;
    try {
      const width = Math.max(200, ...names.map((name) => this.charts.get(name).buckets));
      const series = this.wanted(names);
      const buckets = runs.length > 20 ? Math.min(300, width) : width;
      const soon = runs.some((row) => !this.answered.has(row.id));  // a picture first, all of it later
      const first = soon && runs.length > 1 ? Math.min(SOON_BUCKETS, buckets) : buckets;
      const found = await this.ask(series, first, soon);
      const asked = new Set(names);
      const windows = new Map(names.map((name) => [name, []]));
      let isNew = false;
      if (first < buckets) this.isAskedAgain = true;
      for (const row of runs) {
        this.answered.add(row.id);
        const own = found.runs[row.id];
        if (!own) continue;
        isMore ||= own.more;
        this.began = own.began;
        const isBegun = Object.keys(own.metrics).length > 0;  // else which metrics it will have is asked again
        if (isBegun && JSON.stringify(own.metrics) !== JSON.stringify(this.known.get(row.id))) {
          this.known.set(row.id, own.metrics);
          isNew = true;
        }
        for (const window of own.windows) windows.get(window.metric)?.push({ ...window, run: row });
      }
      for (const name of asked) {
        const chart = this.charts.get(name);
        if (chart) chart.windows = windows.get(name);
      }
      this.problems = Object.entries(found.problems).map(([run, text]) => `${run}: ${text}`);
      this.lacksX = runs.length > 0 && runs.every((row) => found.runs[row.id] && !found.runs[row.id].has_x);
      this.draw();
      if (isNew) {
        this.layOut();
        const had = new Set(series.map(keyOf));
        if (this.wanted([...this.visible]).some((one) => !had.has(keyOf(one)))) this.isAskedAgain = true;
      }
    } catch (error) {
      this.problems = [error.message];
    } finally {
      this.isBusy = false;
      this.hasDrawn();
    }
    if (this.isClosed) return;
    if (this.isAskedAgain) { this.isAskedAgain = false; this.fetch(); }
    else if (isMore) setTimeout(() => this.fetch(), 150);
  }

  draw() {
    if (this.isClosed) return;
    const runs = this.runs();
    const ids = new Set(runs.map((row) => row.id));
    const isOne = ids.size === 1;
    for (const name of this.visible) {
      const chart = this.charts.get(name);
      if (!chart?.windows) continue;
      const lines = chart.windows.filter((window) => ids.has(window.run.id)).map((window) => {
        const hasKeys = (this.known.get(window.run.id)?.[name]?.keys ?? []).length > 1;
        const place = /^gpu_/.test(name) ? "GPU" : Number.isInteger(window.key) ? "rank" : "";
        return { ...window, label: isOne && hasKeys ? `${place} ${window.key}`.trim() : window.run.name, run: hasKeys && isOne ? { ...window.run, run_id: `${window.run.run_id}/${window.key}` } : window.run };
      });
      if (view.seeds && !isOne) lines.splice(0, lines.length, ...overSeeds(lines));
      const drawn = dashes((view.seeds || isOne ? lines.map((line) => line.run) : runs).map((run) => run.run_id));
      for (const line of lines) line.dash = drawn.get(line.run.run_id) ?? null;
      chart.set({ lines, marks: this.marks(name), isOne, isLog: view.log === "1", isLogX: view.xlog === "1", weight: view.smooth, zoom: view.zoom, xLabel: view.x });
      if (!lines.length && this.problems?.length) chart.note.textContent = this.problems[0].replace(/^[^:]*: /, "");
      else if (!lines.length && this.lacksX) chart.note.textContent = `these runs do not say how many ${view.x} a step has`;
    }
  }

  async saveCsv(chart) {
    try {
      const found = await this.ask(this.wanted([chart.metric]), 5000);
      const rows = [["run", "name", "key", view.x, "value", "min", "max", "records"]];
      for (const row of this.runs()) {
        for (const window of found.runs[row.id]?.windows ?? []) {
          window.x.forEach((x, at) => rows.push([row.id, row.name, window.key, x, window.last[at], window.min?.[at] ?? window.last[at], window.max?.[at] ?? window.last[at], window.count?.[at] ?? 1]));
        }
      }
      const text = rows.map((row) => row.map((cell) => (/^[=+@\t\r]|[",\n]/.test(String(cell)) ? `"${String(cell).replace(/^([=+@\t\r])/, "'$1").replaceAll('"', '""')}"` : cell ?? "")).join(",")).join("\n");
      save(`${chart.metric}.csv`, `${text}\n`, "text/csv");
      say(`${number(rows.length - 1)} rows saved`);
    } catch (error) {
      say(error.message);
    }
  }
}

// The controls that all boards share: axis, smoothing, logarithm, zoom, search.
export function boardBar(extra = []) {
  const x = h("select", { "aria-label": "horizontal axis", disabled: kept !== null, onchange: (event) => change({ x: event.target.value.replace("log ", ""), xlog: event.target.value.startsWith("log ") ? "1" : "", zoom: null }) },
    ["step", "time", "samples", "tokens", "log step", "log time", "log samples", "log tokens"].map((name) => h("option", { value: name, selected: name === (view.xlog ? `log ${view.x}` : view.x) }, name)));
  x.style.width = "92px";
  const shown = h("output", { class: "number" }, view.smooth ? view.smooth.toFixed(2) : "off");
  const smooth = h("input", { type: "range", min: "0", max: "0.99", step: "0.01", value: String(view.smooth), id: "smooth", "aria-label": "smoothing",
    oninput: (event) => { change({ smooth: Number(event.target.value) }); shown.textContent = view.smooth ? view.smooth.toFixed(2) : "off"; } });
  smooth.style.width = "60px";
  const log = h("button", { type: "button", id: "log", "aria-pressed": String(view.log === "1"), title: "logarithmic vertical axis (l)", onclick: () => change({ log: view.log === "1" ? "" : "1" }) }, "log");
  const zoom = view.zoom ? h("button", { type: "button", title: "show all (Esc, or a double click in a chart)", onclick: () => change({ zoom: null }) }, "whole range") : null;
  const find = h("input", { type: "search", id: "find", class: "find", placeholder: "Find metric", "aria-label": "find a metric", value: view.find, oninput: (event) => change({ find: event.target.value }) });
  find.style.width = "108px";
  return h("div", { class: "bar" }, ...extra, find, h("span", { class: "grow" }), h("label", {}, "smoothing", smooth, shown), log, h("label", {}, "x", x), zoom);
}
