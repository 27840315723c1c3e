// The parts of a sweep: the best and the rest, trials in their order, what mattered, parallel coordinates, the leaderboard.

import { h, number, replace } from "../dom.js";
import { addressOf } from "../view.js";
import { command, drawnByWidth, plural, short, svg, titled } from "./parts.js";

// Trials that parallel coordinates draw; of more, the best and evenly chosen others.
const MOST_LINES = 1000;

export class SweepParts {
  constructor() {
    this.place = h("div", { class: "sweep" });
    this.observers = [];
  }

  close() { for (const one of this.observers) one.disconnect(); }

  draw(found) {
    const text = JSON.stringify(found.sweep);
    if (text === this.text) return [this.place];
    this.text = text;
    this.close();
    this.observers = [];
    this.ids = new Map(found.variants.flatMap((one) => one.cells.map((cell) => [cell.name, cell.id])));
    this.sweep = found.sweep;
    replace(this.place, this.best(), h("div", { class: "two" }, this.history(), this.importance()), this.parallel(), this.leaderboard());
    return [this.place];
  }

  href(name) {
    const id = this.ids.get(name);
    return id ? addressOf({ matrix: "", run: id, tab: "charts", zoom: null }) : null;
  }

  // ------------------------------------------------------------- the best

  best() {
    const sweep = this.sweep;
    const [first] = sweep.rows;
    const heading = h("h2", {}, "Best so far");
    if (!first) return h("section", { class: "card", "aria-label": "best" }, heading, h("p", { class: "soft" }, `No trial is complete and has ${sweep.metric}.`));
    const values = sweep.symbols.map((name) => h("div", {}, h("dt", {}, name), h("dd", {}, short(first.values[name]))));
    const rank = first.rank_range ? (first.rank_range[1] > 1 ? `may truly have any of the ranks 1 to ${first.rank_range[1]}` : "is shown to be the best") : "";
    return h("section", { class: "card", "aria-label": "best" }, heading,
      h("p", { class: "value-line" }, h("strong", {}, `${sweep.metric} ${number(first.mean, 6)}`), first.standard_deviation === null ? "" : ` ± ${number(first.standard_deviation, 3)}`, h("span", { class: "soft" }, ` of ${plural(sweep.rows.length, "configuration")}; ${sweep.objective}${rank ? `; it ${rank} (${100 * sweep.confidence} %)` : ""}`)),
      h("dl", { class: "values" }, values), sweep.notes.map((note) => h("p", { class: "soft small" }, note)),
      sweep.warning ? [h("p", { class: "small" }, `${sweep.warning}; next, ${sweep.confirm_words}:`), command(sweep.confirm, "")] : null,
      sweep.winners.map((of) => h("details", { class: "small" }, h("summary", {}, `the best of each ${of.symbol}`), h("ul", {}, of.lines.map((line) => h("li", {}, line))), command(of.command, "to compare them:"))));
  }

  // ------------------------------------------------------------- trials in their order

  history() {
    const place = h("div", { class: "picture" });
    const { trials, metric } = this.sweep;
    const isDown = this.sweep.direction === "minimize";
    const known = trials.map((trial, at) => ({ ...trial, at })).filter((trial) => Number.isFinite(trial.value));
    const draw = (width) => {
      const height = 220, left = 56, right = 12, top = 10, bottom = 26;
      const [low, high] = middle(known.map((trial) => trial.value), isDown);
      const x = (at) => left + ((width - left - right) * (at + 0.5)) / Math.max(1, trials.length);
      const y = (value) => top + (height - top - bottom) * (1 - (Math.min(high, Math.max(low, value)) - low) / (high - low || 1));
      let best = null, line = "";
      for (const trial of known) {
        const isBetter = best === null || (isDown ? trial.value < best : trial.value > best);
        if (isBetter) { line += `${line ? `H${x(trial.at)}V` : `M${x(trial.at)},`}${y(trial.value)}`; best = trial.value; }
      }
      if (line) line += `H${width - right}`;
      const ends = endsOf(known.map((trial) => trial.value), [low, high]);
      const ticks = [[low, ends[0]], [(low + high) / 2, ""], [high, ends[1]]].map(([value, end]) => [svg("line", { class: "grid", x1: left, x2: width - right, y1: y(value), y2: y(value) }), svg("text", { class: "axis", x: left - 6, y: y(value) + 4, "text-anchor": "end" }, `${end}${number(value, 3)}`)]);
      const points = known.map((trial) => this.link(trial, svg("circle", { class: trial.value === best ? "point best" : "point", cx: x(trial.at), cy: y(trial.value), r: trial.value === best ? 5 : 3.5 }, titled(`trial ${trial.at + 1}: ${metric} ${number(trial.value, 6)}${trial.value > high || trial.value < low ? ", beyond the axis" : ""}\n${words(trial.values)}`))));
      const failed = trials.map((trial, at) => ({ ...trial, at })).filter((trial) => trial.state === "failed").map((trial) => svg("text", { class: "cross", x: x(trial.at), y: height - bottom - 2, "text-anchor": "middle" }, "✕", titled(`trial ${trial.at + 1}: ${trial.reason}`)));
      replace(place, svg("svg", { width, height, role: "group", "aria-label": `${metric} of ${trials.length} trials in their order; the best is ${best === null ? "unknown" : number(best, 6)}` }, ticks, svg("path", { class: "running-best", d: line || null }), points, failed,
        svg("text", { class: "axis", x: left, y: height - 6 }, "trial 1"), svg("text", { class: "axis", x: width - right, y: height - 6, "text-anchor": "end" }, `${trials.length}`)));
    };
    this.observers.push(drawnByWidth(place, draw));
    return h("section", { class: "card", "aria-label": "history" }, h("h2", {}, `${metric} by trial`), h("p", { class: "soft small" }, "A point is a trial that is complete, the line the best until then."), place);
  }

  link(trial, element) {
    const href = this.href(trial.name);
    return href ? svg("a", { href, "aria-label": `trial ${trial.name}` }, element) : element;
  }

  // ------------------------------------------------------------- what mattered

  importance() {
    const rows = this.sweep.importance.map((one) => {
      const bar = h("span", { class: "bar-line share" });
      bar.style.width = `${100 * (one.share ?? 0)}%`;
      const way = one.rises === null ? "" : (one.rises ? "rises with it" : "falls with it");
      return h("li", {}, h("span", { class: "bar-name" }, one.symbol), h("span", { class: "bar-room" }, bar), h("span", { class: "number" }, one.share === null ? "too few trials" : `${Math.round(100 * one.share)} %`), h("span", { class: "soft small" }, one.share ? way : ""));
    });
    return h("section", { class: "card", "aria-label": "importance" }, h("h2", {}, "What mattered"), h("p", { class: "soft small" }, `Share of the ranks of ${this.sweep.metric} that each parameter explains alone (ε² of Kruskal and Wallis, complete trials); what two do only together is in neither.`), h("ul", { class: "shares" }, rows));
  }

  // ------------------------------------------------------------- parallel coordinates

  parallel() {
    const { symbols, metric } = this.sweep;
    const all = this.sweep.trials.filter((trial) => Number.isFinite(trial.value));
    if (all.length < 2) return null;
    const isDown = this.sweep.direction === "minimize";
    const sorted = [...all].sort((a, b) => (isDown ? a.value - b.value : b.value - a.value));
    const every = Math.max(1, Math.ceil(sorted.length / MOST_LINES));
    const trials = sorted.filter((_, at) => at % every === 0);
    const place = h("div", { class: "picture parallel" });
    const found = trials.map((trial) => trial.value);
    const axes = [...symbols.map((name) => axisOf(name, trials.map((trial) => trial.values[name]))), { ...numbersAxis(metric, middle(found, isDown), found), isObjective: true }];
    const draw = (room) => {
      const width = Math.max(room, 96 * axes.length), height = 280, top = 40, bottom = 14, side = 54;
      const x = (place) => side + ((width - 2 * side) * place) / Math.max(1, axes.length - 1);
      const y = (axis, value) => top + (height - top - bottom) * (1 - axis.place(value));
      const lines = [...trials].reverse().map((trial, from) => {
        const rank = trials.length - 1 - from;
        const points = axes.map((axis, at) => [x(at), axis.isObjective ? y(axis, trial.value) : trial.values[axis.name] === null || trial.values[axis.name] === undefined ? null : y(axis, trial.values[axis.name])]).filter(([, one]) => one !== null);
        const path = svg("path", { class: rank === 0 ? "way first" : "way", d: `M${points.map((one) => one.map((edge) => edge.toFixed(1)).join(",")).join("L")}` }, titled(`${metric} ${number(trial.value, 6)}\n${words(trial.values)}`));
        path.style.setProperty("--share", String(trials.length > 1 ? rank / (trials.length - 1) : 0));
        return this.link(trial, path);
      });
      const drawn = axes.map((axis, at) => [svg("line", { class: "axis-line", x1: x(at), x2: x(at), y1: top, y2: height - bottom }),
        svg("text", { class: "axis name", x: x(at), y: 14, "text-anchor": "middle" }, axis.name.length > 18 ? `${axis.name.slice(0, 17)}…` : axis.name, titled(axis.name)),
        axis.ticks.map(([share, text]) => svg("text", { class: "axis tick", x: x(at) + 4, y: top + (height - top - bottom) * (1 - share) + (share > 0.99 ? -4 : share < 0.01 ? 11 : 4) }, text))]);
      replace(place, svg("svg", { width, height, role: "group", "aria-label": `parallel coordinates of ${trials.length} trials over ${axes.map((axis) => axis.name).join(", ")}` }, lines, drawn));
    };
    this.observers.push(drawnByWidth(place, draw));
    return h("section", { class: "card", "aria-label": "parallel coordinates" }, h("h2", {}, "Every complete trial"), h("p", { class: "soft small" }, `A line is a trial; the stronger its color, the better, and the best is green. Click one for its run.${every > 1 ? ` ${trials.length} of ${all.length} are drawn, evenly by rank.` : ""}`), h("div", { class: "scroll-x", tabindex: "0", role: "region", "aria-label": "picture of all trials" }, place));
  }

  // ------------------------------------------------------------- the leaderboard

  leaderboard() {
    const { rows, symbols, metric } = this.sweep;
    if (!rows.length) return null;
    const hasRanges = rows.some((row) => row.rank_range);
    const isSeveral = rows.some((row) => row.trials.length > 1);
    const head = h("tr", {}, ["rank", ...(hasRanges ? ["95 %"] : []), ...symbols, metric, `best ${metric}`, isSeveral ? "n" : "trial"].map((title) => h("th", { scope: "col" }, title)));
    const body = rows.slice(0, 500).map((row) => {
      const href = this.href(row.trials[0]);
      const trial = isSeveral ? `${row.complete}/${row.trials.length}` : row.trials[0];
      return h("tr", {}, h("td", {}, href ? h("a", { href }, String(row.rank)) : String(row.rank)), hasRanges ? h("td", {}, row.rank_range ? (row.rank_range[0] === row.rank_range[1] ? String(row.rank_range[0]) : `${row.rank_range[0]} to ${row.rank_range[1]}`) : "–") : null,
        symbols.map((name) => h("td", { class: "value" }, short(row.values[name]))), h("td", { class: "number" }, number(row.mean, 6), row.standard_deviation === null ? "" : h("span", { class: "soft" }, ` ± ${number(row.standard_deviation, 3)}`)), h("td", { class: "number soft" }, number(row.best_validation, 6)), h("td", { class: "soft" }, trial));
    });
    return h("section", { class: "card", "aria-label": "leaderboard" }, h("h2", {}, "Leaderboard"), h("div", { class: "wide-table", tabindex: "0", role: "region", "aria-label": "table of leaderboard" }, h("table", { class: "plain" }, h("thead", {}, head), h("tbody", {}, body))),
      rows.length > 500 ? h("p", { class: "soft small" }, `and ${rows.length - 500} more, in leaderboard.md`) : null);
  }
}

const words = (values) => Object.entries(values).filter(([, value]) => value !== null).map(([name, value]) => `${name} ${short(value)}`).join("\n");

// The range of the good half and somewhat more: one diverged trial would press all others together.
function middle(values, isDown) {
  const sorted = values.filter(Number.isFinite).sort((a, b) => a - b);
  if (!sorted.length) return [0, 1];
  const [low, high] = [sorted[0], sorted.at(-1)];
  const half = sorted[Math.floor(sorted.length / 2)];
  if (isDown && high - low > 6 * (half - low) && half > low) return [low, low + 4 * (half - low)];
  if (!isDown && high - low > 6 * (high - half) && half < high) return [high - 4 * (high - half), high];
  return low === high ? [low - 0.5, high + 0.5] : [low, high];
}

// What stands before the ends of an axis: values beyond it are drawn there.
const endsOf = (values, [low, high]) => [values.some((value) => value < low) ? "≤ " : "", values.some((value) => value > high) ? "≥ " : ""];

function numbersAxis(name, [low, high], values = []) {
  const [below, above] = endsOf(values, [low, high]);
  return { name, place: (value) => (Math.min(high, Math.max(low, value)) - low) / (high - low || 1), ticks: [[0, `${below}${number(low, 3)}`], [0.5, number((low + high) / 2, 3)], [1, `${above}${number(high, 3)}`]] };
}

// Numbers by size, by order of magnitude where they span more than one, everything else as names.
function axisOf(name, texts) {
  const known = [...new Set(texts.filter((text) => text !== null && text !== undefined))];
  const numbers = known.map(Number);
  if (known.length && numbers.every(Number.isFinite)) {
    const [low, high] = [Math.min(...numbers), Math.max(...numbers)];
    if (low > 0 && high / low >= 20) {
      const [a, b] = [Math.log10(low), Math.log10(high)];
      return { name, place: (text) => (Math.log10(Number(text)) - a) / (b - a), ticks: [[0, number(low, 3)], [0.5, number(10 ** ((a + b) / 2), 2)], [1, number(high, 3)]] };
    }
    if (low === high) return { name, place: () => 0.5, ticks: [[0.5, number(low, 3)]] };
    const axis = numbersAxis(name, [low, high]);
    return { ...axis, place: (text) => axis.place(Number(text)) };
  }
  known.sort();
  const at = (text) => (known.length > 1 ? known.indexOf(text) / (known.length - 1) : 0.5);
  return { name, place: at, ticks: known.length > 12 ? [] : known.map((text) => [at(text), text.length > 12 ? `${text.slice(0, 11)}…` : text]) };
}
