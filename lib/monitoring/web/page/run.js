// The page of one run: charts, alerts, log, configuration, where it ran, checkpoints, pictures, requests.

import { ago, bytes, copy, date, duration, h, number, replace, save, say, swatch, update, withUnit } from "./dom.js";
import { Board, boardBar } from "./board.js";
import { pictureOf } from "./kept.js";
import { blobOf, get, now, post, store } from "./net.js";
import { openInPerfetto, PERFETTO } from "./perfetto.js";
import { mainMetrics, statusCell, tagPills } from "./table.js";
import { change, view } from "./view.js";

const TABS = { charts: "Charts", alerts: "Alerts", log: "Log", config: "Configuration", about: "Environment", checkpoints: "Checkpoints", traces: "Profiles", pictures: "Samples", control: "Control" };

export class RunPage {
  constructor() {
    this.id = view.run;
    this.details = null;
    this.head = h("header", { class: "run-head" });
    this.tabs = h("div", { class: "tabs", role: "tablist", "aria-label": "Parts of the run" });
    this.body = h("div", { class: "tab", role: "tabpanel" });
    this.board = new Board({ runs: () => [this.row].filter(Boolean), marks: () => this.marks() });
    this.drawHead();
    this.drawTab();
    this.load();
    this.timer = setInterval(() => this.tick(), 2000);
  }

  get elements() { return [this.head, this.tabs, this.body]; }

  get row() { return store.rows.get(this.id); }

  close() {
    clearInterval(this.timer);
    this.isClosed = true;
    this.board.close();
  }

  async load() {
    if (this.isLoading) return;
    this.isLoading = true;
    try {
      if (view.tab === "charts") await this.board.drawn;  // what happened in a long journal takes longer to find
      this.details = await get("api/run", view.at ? { id: this.id, at: view.at } : { id: this.id });
      this.problem = "";
    } catch (error) {
      this.problem = error.message;
    } finally {
      this.isLoading = false;
    }
    if (this.isClosed) return;
    this.drawHead();
    if (view.tab !== "log") this.drawTab();
    else if (!this.logPart) this.drawTab();
  }

  drawHead() {
    const row = this.row;
    const back = h("a", { href: "#", class: "small", onclick: (event) => { event.preventDefault(); change({ run: "", zoom: null }, { isNewPage: true }); } }, "‹ all runs");
    if (!row) {
      replace(this.head, back, h("p", { class: "empty" }, !store.isComplete ? "reading …" : store.live.has(this.id) ? "It had not begun." : `There is no run ${this.id} (any more).`));
      return;
    }
    if (this.isNoting && this.head.querySelector(".note-form")) return;  // what is being typed stays
    const isBase = view.base === row.id;
    const facts = [];
    const tile = (label, value, note) => facts.push(h("div", { class: "tile" }, h("span", { class: "label" }, label), h("span", { class: "value" }, value, note ? h("span", { class: "note" }, note) : null)));
    const done = row.steps ? Math.min(1, (row.step ?? 0) / row.steps) : null;
    tile("Steps", number(row.step), row.steps ? `of ${number(row.steps)}${done !== null ? ` · ${Math.floor(100 * done)} %` : ""}` : "");
    if (row.status === "running") tile("Time left", duration(row.left === null ? null : Math.max(0, row.left - Math.max(0, now() - row.updated))), row.pace ? `${number(row.pace, 3)} steps/s` : "");
    tile("Duration", duration(row.seconds), `seen ${ago(row.updated, now())}`);
    for (const name of mainMetrics().filter((one) => one in row.metrics).slice(0, 3)) tile(name, withUnit(row.metrics[name], store.metrics[name].unit));
    update(this.head, h("div", { class: "title" }, back, swatch(row.run_id), h("h1", {}, row.name), h("span", {}, [...statusCell(row).childNodes]), tagPills(row),
      h("button", { type: "button", "data-part": "base", "aria-pressed": String(isBase), onclick: () => change({ base: view.base === this.id ? "" : this.id }) }, isBase ? "★ baseline" : "☆ baseline"),
      h("button", { type: "button", class: "quiet", title: "copy the directory", onclick: () => copy(this.details?.directory ?? row.id) }, "copy path"),
      store.isReadOnly ? null : h("button", { type: "button", class: "quiet", "data-part": "note", "aria-expanded": String(Boolean(this.isNoting)), onclick: () => { this.isNoting = !this.isNoting; this.drawHead(); } }, row.tags || row.note ? "edit note" : "add note")),
      row.note && !this.isNoting ? h("p", { class: "note" }, row.note) : null,
      this.isNoting ? this.noteForm(row) : null,
      row.problem || this.problem ? h("p", { class: "pill error" }, row.problem || this.problem) : null,
      h("div", { class: "tiles" }, facts));
    document.title = `${row.name} · kharness`;
  }

  noteForm(row) {
    const tags = h("input", { type: "text", name: "tags", value: row.tags ?? "", placeholder: "tags, with commas between", "aria-label": "tags" });
    const note = h("textarea", { name: "note", rows: 3, "aria-label": "note", placeholder: "what this run is for, what it has shown" }, row.note ?? "");
    const keep = async (event) => {
      event.preventDefault();
      try {
        await post("api/notes", { id: row.id, tags: tags.value.split(",").map((tag) => tag.trim()).filter(Boolean), note: note.value });
        this.isNoting = false;
        say("kept in notes.json of the run");
        this.drawHead();
      } catch (error) {
        say(error.message);
      }
    };
    return h("form", { class: "note-form", onsubmit: keep }, tags, note, h("button", { type: "submit" }, "Keep"));
  }

  drawTabs() {
    const details = this.details;
    const counts = details ? { alerts: details.alerts.length, checkpoints: details.checkpoints.length, traces: details.traces.length, pictures: details.pictures.length } : {};
    const shown = Object.entries(TABS).filter(([name]) => !details || {
      log: details.logs.length, checkpoints: details.checkpoints.length, traces: details.traces.length, pictures: details.pictures.length || details.predictions.length,
      control: !details.control.why_not || details.changes.length || details.facts.status === "running",
    }[name] !== 0 && !(name === "control" && details.control.why_not && !details.changes.length && details.facts.status !== "running"));
    this.names = shown.map(([name]) => name);
    update(this.tabs, shown.map(([name, title]) => h("button", { type: "button", role: "tab", id: `tab-${name}`, "data-part": name, "aria-selected": String(view.tab === name), onclick: () => change({ tab: name }) }, title, counts[name] ? h("span", { class: "soft" }, ` ${counts[name]}`) : null)));
  }

  drawTab() {
    this.drawTabs();
    this.body.setAttribute("aria-labelledby", `tab-${view.tab}`);
    if (view.at && !this.row && store.isComplete) { replace(this.body); return; }
    if (view.tab === "charts") {
      if (!this.body.contains(this.board.element) || this.isBarOld) replace(this.body, boardBar(), this.board.element);
      this.isBarOld = false;
      this.board.update();
      return;
    }
    if (!this.details) { replace(this.body, h("div", { class: "empty" }, this.problem || "reading …")); return; }
    if (view.tab === "log" && this.logPart && this.body.contains(this.logElement)) return;
    const { facts, metrics, ...others } = this.details;  // no part shows these, which change with each record
    const content = JSON.stringify([view.tab, facts.status, others]);
    if (content === this.drawn && this.body.childElementCount) return;
    this.drawn = content;
    const top = this.body.scrollTop;
    const focused = document.activeElement?.closest?.(".ask") ? document.activeElement.name : null;
    const typed = Object.fromEntries([...this.body.querySelectorAll(".ask input")].map((input) => [input.name, input.value]));
    replace(this.body, this.names.includes(view.tab) ? this[view.tab]() : h("div", { class: "empty" }, view.tab in TABS ? `It has no ${TABS[view.tab].toLowerCase()}.` : "There is no such part."));
    for (const input of this.body.querySelectorAll(".ask input")) if (input.name in typed) input.value = typed[input.name];
    if (focused) this.body.querySelector(`.ask [name="${focused}"]`)?.focus();
    this.body.scrollTop = top;
  }

  marks() {
    if (!this.details || view.x === "samples" || view.x === "tokens") return [];
    const start = this.board.began ?? this.row?.started ?? 0;
    return this.details.alerts.filter((alert) => alert.severity !== "info" && (view.x === "time" ? alert.time : alert.global_step)).slice(-60).map((alert) => ({
      x: view.x === "time" ? alert.time - start : alert.global_step, severity: alert.severity, text: `${alert.rule}: ${alert.message}`,
    }));
  }

  alerts() {
    const { alerts, diagnoses, facts } = this.details;
    const firing = facts.status === "running" ? "fires now" : "to the end";
    const pills = h("div", { class: "diagnoses" }, diagnoses.map((one) => h("div", { class: "tile", title: one.message ?? "" }, h("span", { class: "label" }, one.title),
      h("span", { class: `pill ${one.fires ? "error" : one.count ? "warning" : ""}` }, one.fires ? firing : one.count ? `${one.count} time${one.count > 1 ? "s" : ""}, over` : "nothing found"))));
    if (!alerts.length) return [pills, h("div", { class: "empty" }, "No alert.")];
    const rows = [...alerts].reverse().map((alert) => h("tr", {}, h("td", {}, h("span", { class: `pill ${alert.severity}` }, alert.severity)), h("td", {}, String(alert.rule ?? "")), h("td", { class: "what" }, String(alert.message ?? ""), alert.look_at ? h("div", { class: "soft small" }, `look at ${alert.look_at}`) : null),
      h("td", { class: "number" }, number(alert.global_step)), h("td", { class: "when" }, date(alert.time)), h("td", {}, alert.state === "firing" ? (alert.ended ? `over after ${duration(alert.ended - alert.time)}` : firing) : "")));
    return [pills, h("div", { class: "wide-table", tabindex: "0", role: "region", "aria-label": "table" }, h("table", { class: "plain" }, h("thead", {}, h("tr", {}, ["severity", "rule", "what", "step", "when", "now"].map((title) => h("th", { scope: "col" }, title)))), h("tbody", {}, rows)))];
  }

  log() {
    const names = this.details.logs;
    const pre = h("pre", { class: "log", tabindex: "0", "aria-label": "log" });
    const follow = h("input", { type: "checkbox", checked: true });
    const find = h("input", { type: "search", placeholder: "Search the log", "aria-label": "search the log" });
    const earlier = h("button", { type: "button" }, "earlier lines");
    const choose = h("select", { "aria-label": "log file" }, names.map((name) => h("option", { value: name }, name)));
    this.logElement = pre;
    this.logPart = { name: names[0], begins: 0, ends: 0, follow, isSearch: false };
    const show = async () => {
      const part = await get("api/log", { id: this.id, name: choose.value });
      this.logPart = { ...this.logPart, name: choose.value, begins: part.begins, ends: part.ends, isSearch: false };
      pre.textContent = plain(part.text) || "(empty)";
      earlier.disabled = part.begins === 0;
      pre.scrollTop = pre.scrollHeight;
    };
    const failing = (action) => async () => { try { await action(); } catch (error) { pre.textContent = error.message; } };
    choose.addEventListener("change", failing(show));
    earlier.addEventListener("click", failing(async () => {
      const part = await get("api/log", { id: this.id, name: choose.value, before: this.logPart.begins });
      const height = pre.scrollHeight;
      pre.prepend(plain(part.text));
      pre.scrollTop = pre.scrollHeight - height;
      this.logPart.begins = part.begins;
      earlier.disabled = part.begins === 0;
    }));
    find.addEventListener("change", failing(async () => {
      if (!find.value) { await show(); return; }
      const found = await get("api/log", { id: this.id, name: choose.value, q: find.value });
      this.logPart.isSearch = true;
      pre.textContent = found.lines.length ? found.lines.map(plain).join("\n") : "no line contains this";
    }));
    failing(show)();
    return [h("div", { class: "bar" }, choose, find, h("span", { class: "grow" }), earlier, h("label", {}, follow, "follow")), pre];
  }

  async tickLog() {
    const part = this.logPart;
    if (view.tab !== "log" || !part || part.isSearch || !part.ends || !part.follow.checked) return;
    try {
      const more = await get("api/log", { id: this.id, name: part.name, after: part.ends });
      if (more.size < part.ends) { this.logElement.textContent = ""; part.ends = 0; }
      if (more.text) {
        const isAtEnd = this.logElement.scrollTop + this.logElement.clientHeight > this.logElement.scrollHeight - 40;
        this.logElement.append(plain(more.text));
        if (isAtEnd) this.logElement.scrollTop = this.logElement.scrollHeight;
      }
      part.ends = more.ends;
    } catch { /* the next look may be answered */ }
  }

  config() {
    const { options, automatic, changes, facts } = this.details;
    const base = view.base && view.base !== facts.id ? store.rows.get(view.base) : null;
    const applied = {};
    for (const change of changes) if (change.event === "control_change") applied[String(change.control).toUpperCase()] = change;
    const names = Object.keys(options).sort();
    const find = h("input", { type: "search", placeholder: "Find an option", "aria-label": "find an option" });
    const only = h("input", { type: "checkbox" });
    const rows = names.map((name) => {
      const auto = automatic[name];
      const told = auto ? `chosen by trials: ${auto.reason}` : applied[name] ? `changed to ${applied[name].new} after step ${applied[name].global_step}, by ${applied[name].source}` : "";
      const differs = base && name in base.options && String(base.options[name]) !== String(options[name]);
      const row = h("tr", { class: differs ? "differs" : "" }, h("th", { scope: "row" }, name), h("td", { class: "value" }, text(options[name])), h("td", { class: "soft" }, told, differs ? `${told ? "; " : ""}baseline: ${text(base.options[name])}` : ""));
      row.dataset.name = name.toLowerCase();
      row.dataset.varies = String(store.options.includes(name));
      return row;
    });
    const apply = () => rows.forEach((row) => { row.hidden = !row.dataset.name.includes(find.value.toLowerCase()) || (only.checked && row.dataset.varies !== "true"); });
    find.addEventListener("input", apply);
    only.addEventListener("change", apply);
    if (!names.length) return h("div", { class: "empty" }, "The run has recorded no configuration.");
    return [h("div", { class: "bar" }, find, h("label", {}, only, "only what differs between runs"), h("span", { class: "grow" }), h("span", { class: "soft small" }, `${names.length} options`)), h("div", { class: "wide-table", tabindex: "0", role: "region", "aria-label": "table" }, h("table", { class: "plain" }, h("tbody", {}, rows)))];
  }

  about() {
    const { run, start, has_environment, directory } = this.details;
    const attempts = run.attempts ?? [];
    const last = attempts.at(-1) ?? {};
    const cards = [];
    const command = Array.isArray(last.command) ? last.command.map(quoted).join(" ") : last.command;
    if (command) {
      const line = `cd ${quoted(last.cwd ?? directory)} && ${command}`;
      cards.push(h("div", { class: "card" }, h("h2", {}, "Command to reproduce"), h("div", { class: "command" }, h("code", {}, line), h("button", { type: "button", onclick: () => copy(line, "command") }, "copy"))));
    }
    const table = (title, values) => {
      const found = Object.entries(values ?? {}).filter(([, value]) => value !== null && value !== undefined && value !== "");
      if (found.length) cards.push(h("div", { class: "card" }, h("h2", {}, title), h("table", { class: "plain" }, h("tbody", {}, found.map(([name, value]) => h("tr", {}, h("th", { scope: "row" }, name), h("td", { class: "value" }, name.endsWith("_bytes") && typeof value === "number" ? bytes(value) : text(value))))))));
    };
    const { git, hardware, versions, command: _, ...rest } = last;
    table("Git", git);
    table("Machine", hardware);
    table("Versions", versions);
    table("Newest attempt", { ...rest, started: date(rest.started) });
    const { model, optimizer, dataset, schedule, event: _event, time, automatic: _auto, hardware: _own, versions: _same, git: _too, ...others } = start;
    table("Model", typeof model === "object" ? model : { model });
    table("Optimizer", optimizer);
    table("Data", typeof dataset === "object" ? dataset : { dataset });
    table("Schedule", schedule);
    table("Start", { ...others, time: date(time) });
    if (attempts.length > 1) table("Attempts", Object.fromEntries(attempts.map((one) => [`attempt ${one.attempt}`, `${date(one.started)} on ${one.host}`])));
    const place = h("div", { class: "cards" }, cards);
    const environment = has_environment ? h("button", { type: "button", onclick: async (event) => {
      try {
        const found = await get("api/environment", { id: this.id });
        event.target.remove();
        const card = (title, values) => h("div", { class: "card" }, h("h2", {}, title), h("table", { class: "plain" }, h("tbody", {}, Object.entries(values ?? {}).map(([name, value]) => h("tr", {}, h("th", { scope: "row" }, name), h("td", { class: "value" }, text(value)))))));
        place.append(card("Packages", found.packages), card("Variables", found.variables));
      } catch (error) { say(error.message); }
    } }, "packages and variables") : null;
    return [environment ? h("div", { class: "bar" }, h("span", { class: "soft small mono" }, directory), h("span", { class: "grow" }), environment) : h("div", { class: "bar" }, h("span", { class: "soft small mono" }, directory)), place];
  }

  checkpoints() {
    const { checkpoints, directory } = this.details;
    const best = checkpoints.findLast((one) => one.best);  // each was the best so far
    const inside = (path) => (path.startsWith(`${directory}/`) ? path.slice(directory.length + 1) : path);
    const rows = [...checkpoints].reverse().map((one) => h("tr", {}, h("td", { class: "number" }, number(one.global_step)), h("td", { class: "value what", title: one.checkpoint_path }, inside(String(one.checkpoint_path ?? "")), one === best ? h("span", { class: "pill complete flag" }, "best") : null), h("td", {}, one.reason ? `on request: ${one.reason}` : ""), h("td", { class: "when" }, date(one.time)), h("td", { class: "value" }, String(one.model_sha256 ?? "").slice(0, 16))));
    return h("div", { class: "wide-table", tabindex: "0", role: "region", "aria-label": "table" }, h("table", { class: "plain" }, h("thead", {}, h("tr", {}, ["step", "file", "why", "written", "SHA-256 of weights"].map((title) => h("th", { scope: "col" }, title)))), h("tbody", {}, rows)));
  }

  traces() {
    const rows = this.details.traces.map(({ name, size }) => h("tr", {}, h("td", { class: "value" }, name), h("td", { class: "number" }, bytes(size)),
      h("td", {}, /\.json(\.gz)?$/.test(name) ? h("button", { type: "button", onclick: () => this.trace(name, openInPerfetto) }, "open in Perfetto") : null, " ", h("button", { type: "button", onclick: () => this.trace(name, save) }, "save"))));
    return [h("p", { class: "soft small" }, "Perfetto is a page of its own, ui.perfetto.dev: the trace goes from this browser to that page and is sent nowhere. Without a network save it, and open it in any viewer of Chrome traces."),
      h("div", { class: "wide-table", tabindex: "0", role: "region", "aria-label": "table" }, h("table", { class: "plain" }, h("tbody", {}, rows)))];
  }

  async trace(name, use) {
    // a window that is opened later than its click is blocked
    const target = use === openInPerfetto ? window.open(PERFETTO) : null;
    try {
      await use(name, await blobOf("api/trace", { id: this.id, name }), target);
    } catch (error) {
      target?.close();
      say(error.message);
    }
  }

  pictures() {
    const { pictures, noted_pictures: noted, predictions } = this.details;
    const steps = Object.fromEntries(noted.map((one) => [one.file, one]));
    const figures = pictures.map((name) => h("figure", { class: "card" }, h("img", { src: pictureOf(this.id, name), alt: name, loading: "lazy" }), h("figcaption", {}, steps[name] ? `${steps[name].name}, step ${number(steps[name].step)}` : name)));
    const names = [...new Set(predictions.flatMap(Object.keys))];
    return [figures.length ? h("div", { class: "pictures" }, figures) : null,
      predictions.length ? h("div", { class: "card" }, h("h2", {}, "Newest predictions"), h("div", { class: "wide-table", tabindex: "0", role: "region", "aria-label": "table" }, h("table", { class: "plain" }, h("thead", {}, h("tr", {}, names.map((name) => h("th", { scope: "col" }, name)))), h("tbody", {}, predictions.map((one) => h("tr", { class: "label" in one && one.label !== one.predicted ? "differs" : "" }, names.map((name) => h("td", {}, text(one[name]))))))))) : null].filter(Boolean);
  }

  control() {
    const { control, changes, pending } = this.details;
    const parts = [];
    if (control.why_not) parts.push(h("p", { class: "soft" }, `No request can be sent: ${control.why_not}.`));
    else {
      const bounds = { log_every: control.log_every, lr_factor: control.lr_factor, profile: control.profile };
      const about = { log_every: "steps between records", lr_factor: "factor on the learning rate", profile: "steps to profile" };
      const asks = control.words.map((word) => {
        if (!(word in bounds)) return null;
        const [low, high] = bounds[word];
        const input = h("input", { type: "number", name: word, min: String(low), max: String(high), step: word === "lr_factor" ? "any" : "1", placeholder: `${low} to ${high}` });
        return h("form", { class: "ask", onsubmit: (event) => { event.preventDefault(); if (input.value) this.ask({ [word]: Number(input.value) }, input); } }, h("label", {}, about[word] ?? word, input), h("button", { type: "submit" }, "send"));
      }).filter(Boolean);
      const once = control.words.filter((word) => !(word in bounds)).map((word) => h("button", { type: "button", class: word === "stop" ? "" : "primary", onclick: () => {
        if (word !== "stop" || confirm("Stop this training? It writes a checkpoint and ends.")) this.ask({ [word]: true });
      } }, { evaluate: "Evaluate now", checkpoint: "Write a checkpoint", stop: "Stop the training …" }[word] ?? word));
      parts.push(h("div", { class: "card" }, h("h2", {}, "Ask the training"), h("div", { class: "asks" }, asks), h("div", { class: "bar" }, once), h("p", { class: "soft small" }, "The training looks every 3 s between two steps, and changes a setting at most once in 30 s.")));
    }
    if (pending.length) parts.push(h("div", { class: "card" }, h("h2", {}, "Not answered yet"), pending.map((name) => h("div", { class: "mono" }, name))));
    const rows = [...changes].reverse().map((one) => h("tr", {}, h("td", {}, h("span", { class: `pill ${one.event === "control_change" ? "complete" : "error"}` }, one.event === "control_change" ? "applied" : "refused")),
      h("td", {}, one.event === "control_change" ? `${one.control}: ${one.old ?? ""}${one.old !== null && one.old !== undefined ? " → " : ""}${text(one.new)}` : String(one.reason)),
      h("td", { class: "number" }, number(one.global_step)), h("td", {}, String(one.source ?? "")), h("td", { class: "when" }, date(one.time))));
    parts.push(h("div", { class: "card" }, h("h2", {}, "Answers"), rows.length ? h("div", { class: "wide-table", tabindex: "0", role: "region", "aria-label": "table" }, h("table", { class: "plain" }, h("thead", {}, h("tr", {}, ["answer", "what", "after step", "asked by", "when"].map((title) => h("th", { scope: "col" }, title)))), h("tbody", {}, rows))) : h("p", { class: "soft" }, "Nothing has been requested yet.")));
    return parts;
  }

  async ask(changes, input = null) {
    try {
      await post("api/control", { id: this.id, changes });
      say(`sent: ${Object.entries(changes).map(([word, value]) => `${word}=${value}`).join(", ")}`);
      if (input) input.value = "";
    } catch (error) {
      say(`refused: ${error.message}`);
    }
    this.load();
  }

  tick() {
    if (document.hidden) return;
    this.drawHead();
    if (view.at) return;
    this.tickLog();
    if (view.tab === "control" && this.details?.pending.length) this.load();
  }

  onRows(changed, isWhole) {
    this.drawHead();
    if (changed.has(this.id) || isWhole) {
      if (view.tab === "charts") this.board.update();
      this.load();
    }
  }

  onView(names) {
    if (names === null || names.includes("tab")) { this.logPart = null; this.drawn = ""; this.drawTab(); return; }
    if (names.includes("base")) { this.drawn = ""; this.drawHead(); }
    if (names.some((name) => ["log", "x", "xlog", "zoom"].includes(name))) this.isBarOld = true;
    if (names.length === 1 && names[0] === "smooth") this.board.draw();
    else this.drawTab();
  }

  onKey(key) {
    const place = this.names?.indexOf(view.tab) ?? 0;
    if (key === "]" && this.names[place + 1]) change({ tab: this.names[place + 1] });
    else if (key === "[" && place > 0) change({ tab: this.names[place - 1] });
    else return false;
    return true;
  }
}

// What a terminal shows of it: without colors, and of a line that was written over the last state.
function plain(part) {
  return part.replace(/\x1b\[[0-9;?]*[ -/]*[@-~]/g, "").split("\n").map((line) => line.replace(/\r+$/, "").split("\r").at(-1)).join("\n");
}

// A word as a shell takes it.
const quoted = (word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${String(word).replaceAll("'", "'\\''")}'`);

// Of a list its values, of names and values a line each.
function text(value) {
  if (value === null || value === undefined) return "–";
  if (typeof value !== "object") return String(value);
  const inner = (one) => (one !== null && typeof one === "object" ? JSON.stringify(one) : text(one));
  return (Array.isArray(value) ? value.map(inner).join(", ") : Object.entries(value).map(([name, one]) => `${name}: ${inner(one)}`).join("\n")) || "none";
}
