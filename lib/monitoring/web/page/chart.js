// One metric of any number of runs. uPlot has the axes, the cursor and the zoom; the lines are drawn here: where a
// pixel stands for several records, the band from their least to their greatest value, so that no spike is lost.

import { color, copy, duration, h, number, save, swatch, withUnit } from "./dom.js";

const uPlot = window.uPlot;
const HEAD = 34;

// Exponential mean without the bias of its start, and exact where the values are constant.
export function smoothed(values, weight, x = []) {
  // of a few values no more than a fourth is looked over, or the line would lag behind all of them
  weight = Math.min(weight, Math.max(0, 1 - 4 / values.length));
  if (!weight) return values;
  let mean = 0;
  let mass = 0;
  return values.map((value, at) => {
    if (value === null || value === undefined || Number.isNaN(value)) return null;
    if (at && x[at] === x[at - 1] && value === values[at - 1]) return mean;  // one measurement in two records
    mass = mass * weight + (1 - weight);
    mean += ((1 - weight) / mass) * (value - mean);
    return mean;
  });
}

// Not up to the next power of ten.
const asGiven = (_, low, high) => [low, high];

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

export class Chart {
  // callbacks: zoom(lo, hi), label(x), runs(): [{id, run_id, name}]
  constructor(metric, about, callbacks) {
    this.metric = metric;
    this.about = about;
    this.callbacks = callbacks;
    this.lines = [];  // {run, key, x, last, min, max, count, exact, smooth}
    this.marks = [];
    this.isLog = false;
    this.weight = 0;
    this.now = h("span", { class: "now" });
    this.plotPlace = h("div", { class: "plot" });
    this.legend = h("div", { class: "legend" });
    this.note = h("div", { class: "note" }, "reading …");
    this.bars = h("div", { class: "bars", hidden: true });
    this.plotPlace.append(this.note, this.bars);
    const tool = (text, title, action) => h("button", { type: "button", title, "aria-label": `${title}: ${metric}`, onclick: action }, text);
    const unit = about.unit && !["unit unknown", "from 1"].includes(about.unit) ? about.unit : "";
    this.element = h("figure", { class: "chart", "aria-label": metric },
      h("figcaption", { title: about.about ? `${metric}: ${about.about}` : metric },
        h("span", { class: "name" }, metric), h("span", { class: "unit" }, unit === "fraction" ? "%" : unit),
        h("span", { class: "grow" }),
        h("span", { class: "tools" },
          tool("PNG", "save as PNG", () => this.savePng()), tool("SVG", "save as SVG", () => this.saveSvg()),
          tool("CSV", "save as CSV", () => callbacks.csv(this)), tool("⤢", "enlarge or reduce", () => callbacks.enlarge(this))),
        this.now),
      this.legend, this.plotPlace);
    this.element.dataset.metric = metric;
  }

  set({ lines, marks, isOne, isLog, isLogX, weight, zoom, xLabel }) {
    Object.assign(this, { isOne, marks, weight, zoom, xLabel });
    this.lines = lines.map((line) => ({ ...line, smooth: smoothed(line.last, weight, line.x) }));
    if (isLog !== this.isLog || isLogX !== this.isLogX) {
      Object.assign(this, { isLog, isLogX });
      this.forget();
    }
    this.range = this.ranges();
    const isEmpty = this.range === null;
    this.bars.hidden = true;
    this.element.classList.remove("once");
    if (!isEmpty && !zoom && lines.every((line) => line.x.length <= 1)) {
      this.drawBars();
      return;
    }
    this.note.hidden = !isEmpty;
    this.note.textContent = isEmpty ? (this.isLog && lines.length ? "no value above 0 for a logarithmic axis" : "no record here") : "";
    this.say();
    if (isEmpty) {
      this.forget();
      return;
    }
    if (!this.plot) this.make();
    else this.plot.batch(() => {
      this.plot.setData(this.data(), false);
      this.plot.setScale("x", { min: this.range.x[0], max: this.range.x[1] });
      this.plot.setScale("y", { min: this.range.y[0], max: this.range.y[1] });
      this.plot.redraw(false, true);  // axes as wide as their numbers; after the batch it would draw all once more
    });
  }

  // Of what every run has measured once, a value each: no line to draw.
  drawBars() {
    this.forget();
    this.note.hidden = true;
    this.say();
    const found = this.lines.filter((line) => line.x.length && line.last[0] !== null);
    const most = Math.max(...found.map((line) => Math.abs(line.last[0]))) || 1;
    this.bars.hidden = false;
    this.element.classList.add("once");
    this.bars.replaceChildren(...found.map((line) => {
      const bar = h("span", { class: "bar-line" });
      bar.style.width = `${Math.max(1, (45 * Math.abs(line.last[0])) / most)}%`;
      bar.style.background = color(line.run.run_id);
      return h("div", { class: "bar-row", title: `${line.label}: ${line.last[0]} at ${this.xLabel} ${line.x[0]}` },
        h("span", { class: "bar-name" }, line.label), bar, h("span", { class: "number" }, withUnit(line.last[0], this.about.unit)));
    }));
  }

  forget() {
    this.plot?.destroy();
    this.plot = null;
  }

  resize() {
    if (!this.plot) return;
    const { clientWidth: width, clientHeight: height } = this.plotPlace;
    if (width && (width !== this.plot.width || height !== this.plot.height)) this.plot.setSize({ width, height });
  }

  get buckets() { return Math.max(100, Math.min(1500, Math.round(this.plot?.width || this.plotPlace.clientWidth || 400))); }

  data() { return [[this.range.x[0], this.range.x[1]], [this.range.y[0], this.range.y[1]]]; }

  // The least and greatest of what is in sight: band and line.
  ranges() {
    let [low, high, left, right] = [Infinity, -Infinity, Infinity, -Infinity];
    const [from, to] = this.zoom ?? [-Infinity, Infinity];
    for (const line of this.lines) {
      for (let place = 0; place < line.x.length; place++) {
        const x = line.x[place];
        if (x < from || x > to || (this.isLogX && x <= 0)) continue;
        const least = line.min ? line.min[place] : line.last[place];
        const most = line.max ? line.max[place] : line.last[place];
        if (x < left) left = x;
        if (x > right) right = x;
        if (least !== null && least < low && (!this.isLog || least > 0)) low = least;
        if (most !== null && most > high) high = most;
        if (this.isLog && most > 0 && most < low) low = most;
      }
    }
    if (!(low <= high) || (this.isLog && high <= 0)) return null;
    if (this.zoom) [left, right] = this.zoom;
    if (left === right) [left, right] = this.isLogX ? [left / 1.1, left * 1.1] : [left - 0.5, right + 0.5];
    const y = this.isLog ? [low / 1.15, high * 1.15] : uPlot.rangeNum(low, high, { min: { pad: 0.06, soft: 0, mode: low >= 0 && low < 0.3 * high ? 1 : 0 }, max: { pad: 0.06 } });
    return { x: [left, right], y };
  }

  make() {
    performance.mark("chart");
    this.plotPlace.querySelector(".uplot")?.remove();
    const axis = { stroke: () => css("--soft"), grid: { stroke: () => css("--grid"), width: 1 }, ticks: { show: false }, font: "11px system-ui, sans-serif" };
    const isTime = this.xLabel === "time";
    const options = {
      width: this.plotPlace.clientWidth || 400, height: this.plotPlace.clientHeight || 200, padding: [8, 10, 0, 0],
      legend: { show: false },
      scales: { x: { time: false, auto: false, range: asGiven, distr: this.isLogX ? 3 : 1, min: this.range.x[0], max: this.range.x[1] }, y: { auto: false, range: asGiven, distr: this.isLog ? 3 : 1, min: this.range.y[0], max: this.range.y[1] } },
      axes: [
        { ...axis, size: 26, gap: 3, values: (_, ticks) => ticks.map((tick) => (tick === null || (this.isLogX && !this.isTelling(tick, this.range.x)) ? "" : isTime ? duration(tick) : short(tick, this.range.x))) },
        { ...axis, size: (_, values) => 14 + 6.4 * Math.max(3, ...(values ?? []).map((text) => (text ?? "").length)), values: (_, ticks) => ticks.map((tick) => (tick === null || (this.isLog && !this.isTelling(tick, this.range.y)) ? "" : this.tick(tick))) },
      ],
      series: [{}, { paths: () => null, points: { show: false } }],
      cursor: { drag: { x: true, y: false, setScale: false, dist: 4 }, points: { show: false }, sync: { key: "runs", scales: ["x", null] }, y: false },
      hooks: {
        draw: [(plot) => this.drawLines(plot.ctx, this.place(plot))],
        setCursor: [(plot) => this.hover(plot)],
        setSelect: [(plot) => this.select(plot)],
      },
    };
    this.plot = new uPlot(options, this.data(), this.plotPlace);
    this.plot.over.addEventListener("dblclick", () => this.callbacks.zoom(null));
    this.plot.over.addEventListener("mouseleave", () => { document.getElementById("tip").hidden = true; this.near = null; });
    this.plot.root.setAttribute("aria-hidden", "true");
  }

  // On a logarithmic axis the powers of ten have names; where there are few of them, others too.
  isTelling(value, range) {
    const decades = Math.log10(range[1] / range[0]);
    const first = Number((value / 10 ** Math.floor(Math.log10(value) + 1e-9)).toPrecision(6));
    return decades < 1 ? true : decades < 3 ? [1, 2, 5].includes(first) : first === 1;
  }

  tick(value) { return this.about.unit === "fraction" ? number(100 * value, digitsIn(this.range.y)) : short(value, this.range.y); }

  select(plot) {
    const { left, width } = plot.select;
    if (width < 4) return;
    const edges = [left, left + width].map((at) => plot.posToVal(at, "x"));
    plot.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
    this.callbacks.zoom(edges);
  }

  // How values become pixels of the canvas.
  place(plot) {
    const { left, top, width, height } = plot.bbox;
    const x = straight(this.range.x, (value) => plot.valToPos(value, "x", true), this.isLogX);
    const y = straight(this.range.y, (value) => plot.valToPos(value, "y", true), this.isLog);
    return { x: (value) => (this.isLogX && value <= 0 ? left - 1e4 : x(value)), y, left, top, width, height, ratio: devicePixelRatio || 1 };
  }

  drawLines(context, place) {
    context.save();
    context.beginPath();
    context.rect(place.left, place.top, place.width, place.height);
    context.clip();
    for (const shape of this.shapes(place)) {
      context.globalAlpha = shape.alpha;
      if (shape.fill) {
        context.fillStyle = shape.color;
        trace(context, shape.pieces);
        context.fill();
        continue;
      }
      if (shape.isUpright) {  // a column of whole pixels needs no path
        const width = Math.max(1, Math.round(shape.width));
        context.fillStyle = shape.color;
        for (const [[x, from], [, to]] of shape.pieces) context.fillRect(Math.floor(x), Math.min(from, to), width, Math.max(1, Math.abs(to - from)));
        continue;
      }
      context.setLineDash(shape.dash ?? []);
      context.strokeStyle = shape.color;
      context.lineWidth = shape.width;
      context.lineJoin = "round";
      // without a GPU the time of a wide line rises with how often it crosses itself: many short ones are quick
      for (const pieces of shape.width > 1 && !shape.dash ? shortened(shape.pieces) : [shape.pieces]) {
        trace(context, pieces);
        context.stroke();
      }
    }
    context.restore();
  }

  // Everything that is drawn, as lines and areas in pixels: for the canvas and for SVG alike.
  shapes(place) {
    const found = [];
    const isMany = this.lines.length > 12;
    const faint = this.weight ? 0.16 : 0.22;
    for (const line of this.lines) {
      const own = color(line.run.run_id);
      const x = line.x.map(place.x);
      if (line.min && !isMany) {
        const piece = [];
        for (let at = 0; at < x.length; at++) if (line.max[at] !== null) piece.push([x[at], this.y(place, line.max[at])]);
        for (let at = x.length - 1; at >= 0; at--) if (line.min[at] !== null) piece.push([x[at], this.y(place, line.min[at])]);
        found.push({ color: own, alpha: faint, fill: true, pieces: [piece] });
        // a single extreme record is a hair wide as an area: its outline is always seen
        found.push({ color: own, alpha: this.weight ? 0.4 : 0.75, width: place.ratio * 0.8, isUpright: true, pieces: [spans(line, x, (value) => this.y(place, value))].flat() });
      } else if (line.min) {
        found.push({ color: own, alpha: 0.6, width: place.ratio * 0.7, isUpright: true, pieces: spans(line, x, (value) => this.y(place, value)) });
      } else if (this.weight) {
        found.push({ color: own, alpha: 0.3, width: place.ratio, pieces: runsOf(x, line.last, (value) => this.y(place, value)) });
      }
      const isNear = this.near === line;
      const isDense = x.length > place.width / place.ratio / 8;
      const values = this.weight ? line.smooth : line.last;
      found.push({ color: own, alpha: this.near && !isNear ? 0.45 : 1, width: place.ratio * (isNear ? 2.6 : isMany || (isDense && !this.weight) ? 1 : 1.5), pieces: runsOf(x, values, (value) => this.y(place, value)), dash: line.dash?.map((part) => part * place.ratio) });
      if (line.exact && x.length && x.length <= place.width / place.ratio / 12) {
        const size = 1.8 * place.ratio;
        const dots = [];
        line.last.forEach((value, at) => {
          if (value !== null && !(this.isLog && value <= 0)) dots.push(circle(x[at], this.y(place, value), size));
        });
        found.push({ color: own, alpha: 1, fill: true, pieces: dots });
      }
    }
    for (const line of this.lines) {
      if (!line.lost) continue;  // where it was NaN or infinite: crosses at the foot
      const [foot, size] = [place.top + place.height - 6 * place.ratio, 3.5 * place.ratio];
      const crosses = line.lost.map(place.x).flatMap((at) => [[[at - size, foot - size], [at + size, foot + size]], [[at - size, foot + size], [at + size, foot - size]]]);
      found.push({ color: css("--bad"), alpha: 1, width: 1.6 * place.ratio, pieces: crosses });
    }
    for (const mark of this.marks) {
      const at = place.x(mark.x);
      found.push({ color: css(mark.severity === "error" ? "--bad" : "--warn"), alpha: 0.8, width: place.ratio * 1.2, dash: [4 * place.ratio, 3 * place.ratio], pieces: [[[at, place.top], [at, place.top + place.height]]] });
    }
    return found;
  }

  y(place, value) { return this.isLog && value <= 0 ? place.top + place.height * 2 : place.y(value); }

  hover(plot) {
    const tip = document.getElementById("tip");
    if (!plot.over.matches(":hover")) return;
    const { left, top } = plot.cursor;
    if (left === null || left < 0 || !this.lines.length) { tip.hidden = true; return; }
    const x = plot.posToVal(left, "x");
    const found = [];
    for (const line of this.lines) {
      const at = nearest(line.x, x);
      const value = at < 0 ? null : (this.weight ? line.smooth : line.last)[at];
      if (value === null || value === undefined) continue;
      found.push({ line, at, value, distance: Math.abs(plot.valToPos(value, "y") - top) });
    }
    if (!found.length) { tip.hidden = true; return; }
    found.sort((a, b) => a.distance - b.distance);
    const near = found[0].distance < 60 ? found[0].line : null;
    if (near !== this.near) {
      this.near = near;
      plot.redraw(false, false);
    }
    const rows = found.slice(0, 10).map(({ line, at, value }) => {
      const dot = swatch(line.run.run_id, true, line.dash);
      dot.style.display = "inline-block";
      const range = line.min && line.count[at] > 1 ? `${number(line.min[at])} … ${number(line.max[at])}, ${line.count[at]} ${line.unit ?? "records"}` : "";
      return h("tr", { class: line === near ? "near" : "" }, h("td", {}, dot), h("td", { class: "name" }, line.label), h("td", {}, withUnit(value, this.about.unit)), h("td", { class: "soft" }, range));
    });
    const at = found[0].line.x[found[0].at];
    const mark = this.marks.find((one) => Math.abs(plot.valToPos(one.x, "x") - left) < 6);
    tip.replaceChildren(
      h("div", { class: "soft" }, `${this.xLabel} ${this.xLabel === "time" ? duration(at) : number(at)}${found.length > 10 ? ` · nearest 10 of ${found.length}` : ""}`),
      h("table", {}, h("tbody", {}, rows)), ...(mark ? [h("div", {}, `⚑ ${mark.text}`)] : []));
    tip.hidden = false;
    const box = plot.over.getBoundingClientRect();
    const wide = tip.offsetWidth;
    const across = box.left + left + 16;
    tip.style.left = `${across + wide > innerWidth - 8 ? Math.max(8, box.left + left - wide - 16) : across}px`;
    tip.style.top = `${Math.max(8, Math.min(innerHeight - tip.offsetHeight - 8, box.top + top + 12))}px`;
    this.hovered = found[0];
  }

  copyHovered() {
    if (!this.hovered) return;
    const { line, at, value } = this.hovered;
    copy(`${line.run.id} ${this.metric}=${value} at ${this.xLabel} ${line.x[at]}`);
  }

  say() {
    const only = this.lines.length === 1 ? this.lines[0] : null;
    const last = only ? only.last.findLast((value) => value !== null) : undefined;
    const isCoarse = this.lines.some((line) => line.coarse);
    const isLost = this.lines.some((line) => line.lost);
    // ranks and GPUs of one run, and several seeds in one line: the table says nothing of their colors
    this.legend.replaceChildren(...((this.isOne && this.lines.length > 1 && this.lines.length <= 16) || this.lines.some((line) => line.unit) ? this.lines.map((line) => h("span", {}, swatch(line.run.run_id, true, line.dash), line.label)) : []));
    this.now.textContent = `${last === undefined ? "" : withUnit(last, this.about.unit)}${isLost ? " · NaN or infinite" : ""}${isCoarse ? " · sampled, reading on" : ""}`;
    const texts = this.lines.slice(0, 5).map((line) => `${line.label}: ${withUnit(line.last.findLast((value) => value !== null), this.about.unit)}`);
    this.element.setAttribute("aria-label", `${this.metric} of ${this.lines.length} lines. ${texts.join("; ")}`);
  }

  savePng() {
    if (!this.plot) return;
    const ratio = devicePixelRatio || 1;
    const from = this.plot.ctx.canvas;
    const legend = this.lines.slice(0, 20);
    const canvas = h("canvas", { width: from.width, height: from.height + ratio * (HEAD + 18 * legend.length) });
    const context = canvas.getContext("2d");
    context.fillStyle = css("--card");
    context.fillRect(0, 0, canvas.width, canvas.height);
    context.drawImage(from, 0, ratio * HEAD);
    context.scale(ratio, ratio);
    context.fillStyle = css("--ink");
    context.font = "600 14px system-ui, sans-serif";
    context.fillText(this.metric, 12, 22);
    context.font = "12px system-ui, sans-serif";
    legend.forEach((line, at) => {
      const y = HEAD + from.height / ratio + 18 * at + 6;
      context.strokeStyle = color(line.run.run_id);
      context.lineWidth = 2.5;
      context.setLineDash(line.dash ?? []);
      trace(context, [[[12, y + 5], [36, y + 5]]]);
      context.stroke();
      context.fillText(line.label, 42, y + 9);
    });
    canvas.toBlob((blob) => save(`${this.metric}.png`, blob), "image/png");
  }

  saveSvg() {
    if (this.plot) save(`${this.metric}.svg`, this.svg(), "image/svg+xml");
  }

  svg() {
    const { width, height } = this.plot;
    const legend = this.lines.slice(0, 20);
    const whole = height + HEAD + 18 * legend.length;
    const ns = "http://www.w3.org/2000/svg";
    const part = (tag, attributes, text) => {
      const one = document.createElementNS(ns, tag);
      for (const [name, value] of Object.entries(attributes)) one.setAttribute(name, value);
      if (text !== undefined) one.textContent = text;
      return one;
    };
    const svg = part("svg", { width, height: whole, viewBox: `0 0 ${width} ${whole}`, "font-family": "system-ui, sans-serif", "font-size": 12 });
    svg.append(part("rect", { width, height: whole, fill: css("--card") }), part("text", { x: 12, y: 22, "font-size": 14, "font-weight": 600, fill: css("--ink") }, this.metric));
    const box = this.plot.bbox;
    const ratio = devicePixelRatio || 1;
    const [left, top, wide, high] = [box.left, box.top, box.width, box.height].map((value) => value / ratio);
    const place = { x: (value) => left + this.plot.valToPos(value, "x"), y: (value) => top + this.plot.valToPos(value, "y"), left, top, width: wide, height: high, ratio: 1 };
    const inner = part("svg", { x: 0, y: HEAD, width, height });
    const clip = part("clipPath", { id: "plot" });
    clip.append(part("rect", { x: left, y: top, width: wide, height: high }));
    inner.append(clip);
    for (const tick of ticks(...this.range.y, this.isLog)) {
      const y = place.y(tick);
      if (y < top || y > top + high) continue;
      inner.append(part("line", { x1: left, x2: left + wide, y1: y, y2: y, stroke: css("--grid") }), part("text", { x: left - 6, y: y + 4, "text-anchor": "end", fill: css("--soft") }, this.tick(tick)));
    }
    for (const tick of ticks(...this.range.x, this.isLogX)) {
      const x = place.x(tick);
      inner.append(part("line", { x1: x, x2: x, y1: top, y2: top + high, stroke: css("--grid") }), part("text", { x, y: top + high + 16, "text-anchor": "middle", fill: css("--soft") }, this.xLabel === "time" ? duration(tick) : short(tick, this.range.x)));
    }
    const drawn = part("g", { "clip-path": "url(#plot)" });
    for (const shape of this.shapes(place)) {
      const d = shape.pieces.map((piece) => piece.map(([x, y], at) => `${at ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("")).join("");
      drawn.append(part("path", shape.fill ? { d, fill: shape.color, "fill-opacity": shape.alpha } : { d, fill: "none", stroke: shape.color, "stroke-opacity": shape.alpha, "stroke-width": shape.width, ...dashOf(shape) }));
    }
    inner.append(drawn);
    svg.append(inner);
    legend.forEach((line, at) => {
      const y = HEAD + height + 18 * at + 6;
      svg.append(part("line", { x1: 12, x2: 36, y1: y + 5, y2: y + 5, stroke: color(line.run.run_id), "stroke-width": 2.5, ...dashOf(line) }), part("text", { x: 42, y: y + 9, fill: css("--ink") }, line.label));
    });
    return new XMLSerializer().serializeToString(svg);
  }
}

const dashOf = ({ dash }) => (dash ? { "stroke-dasharray": dash.join(" ") } : {});

// What uPlot computes of each value by looking up its scale, which is a straight line or that of a logarithm.
function straight([low, high], exact, isLog) {
  const own = isLog ? Math.log10 : Number;
  const start = exact(low);
  const slope = (exact(high) - start) / (own(high) - own(low));
  return (value) => start + slope * (own(value) - own(low));
}

// As many as tell the numbers of an axis apart, three or more.
const digitsIn = ([low, high]) => Math.min(9, Math.max(3, 2 + Math.ceil(Math.log10(Math.max(Math.abs(low), Math.abs(high)) / (high - low)))));

function short(value, range) {
  const size = Math.abs(value);
  const digits = digitsIn(range);
  if (size >= 1e9) return `${number(value / 1e9, digits)}G`;
  if (size >= 1e6) return `${number(value / 1e6, digits)}M`;
  if (size >= 1e4) return `${number(value / 1e3, digits)}k`;
  return number(value, digits);
}

function ticks(from, to, isLog) {
  if (isLog) {
    const found = [];
    for (let power = Math.floor(Math.log10(from)); power <= Math.ceil(Math.log10(to)); power++) found.push(10 ** power);
    return found.length > 1 ? found : [from, to];
  }
  const raw = (to - from) / 5;
  const base = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((factor) => factor * base).find((one) => one >= raw);
  const found = [];
  for (let tick = Math.ceil(from / step) * step; tick <= to; tick += step) found.push(Number(tick.toPrecision(12)));
  return found;
}

// The last place whose x is not above, or the one after where that is nearer.
function nearest(values, x) {
  let [low, high] = [0, values.length - 1];
  if (high < 0) return -1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (values[middle] <= x) low = middle;
    else high = middle - 1;
  }
  return low + 1 < values.length && values[low + 1] - x < x - values[low] ? low + 1 : low;
}

// The stretches of a line between values that are missing.
function runsOf(x, values, y) {
  const pieces = [];
  let piece = [];
  values.forEach((value, at) => {
    if (value === null || value === undefined) {
      if (piece.length) pieces.push(piece);
      piece = [];
    } else piece.push([x[at], y(value)]);
  });
  if (piece.length) pieces.push(piece);
  return pieces;
}

function trace(context, pieces) {
  context.beginPath();
  for (const piece of pieces) piece.forEach(([x, y], at) => (at ? context.lineTo(x, y) : context.moveTo(x, y)));
}

// Stretches of few points, each of which begins where the one before it ends.
function* shortened(pieces) {
  for (const piece of pieces) for (let at = 0; at === 0 || at < piece.length - 1; at += 16) yield [piece.slice(at, at + 17)];
}

// From the least to the greatest value of each bucket.
function spans(line, x, y) {
  const pieces = [];
  line.min.forEach((least, at) => {
    if (least !== null && line.max[at] !== least) pieces.push([[x[at], y(least)], [x[at], y(line.max[at])]]);
  });
  return pieces;
}

function circle(x, y, size) {
  const found = [];
  for (let at = 0; at <= 8; at++) found.push([x + size * Math.cos((at * Math.PI) / 4), y + size * Math.sin((at * Math.PI) / 4)]);
  return found;
}
