// Parts that the pages of matrices and sweeps have in common: pictures in SVG, commands, statuses.

import { ago, copy, h, number } from "../dom.js";
import { now } from "../net.js";

export function svg(tag, properties = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, String(value));
  }
  element.append(...children.flat(3).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

export const titled = (text) => svg("title", {}, text);

// A command as it is typed, with a button that copies it.
export function command(text, why) {
  return h("div", { class: "told" }, h("span", { class: "soft small" }, why),
    h("div", { class: "command" }, h("code", {}, text), h("button", { type: "button", "aria-label": `copy: ${text}`, onclick: () => copy(text, "the command") }, "copy")));
}

// How a cell stands: its sign, so that nothing hangs on colors alone, and the class that colors it.
const SIGNS = {
  complete: ["✓", "good"], running: ["▶", "trains"], queued: ["…", "waits"], pending: ["·", "none"], interrupted: ["‖", "warn"], silent: ["?", "warn"], "stopped early": ["⏹", "early"],
  failed: ["✕", "bad"], killed: ["✕", "bad"], timeout: ["⏱", "bad"], unreadable: ["?", "bad"], missing: ["?", "bad"],
};
export const signOf = (status) => SIGNS[status] ?? ["?", "warn"];

export function statusBar(counts) {
  const total = Object.values(counts).reduce((one, other) => one + other, 0) || 1;
  const words = Object.entries(counts).map(([status, count]) => `${count} ${status}`).join(", ");
  const bar = h("div", { class: "status-bar", role: "img", "aria-label": words, title: words });
  for (const [status, count] of Object.entries(counts)) {
    const part = h("span", { class: `part ${signOf(status)[1]}` });
    part.style.flexGrow = String(count / total);
    bar.append(part);
  }
  return bar;
}

// A difference as a person reads it: +2.00 points of a share, +0.0123 of a loss.
export function signed(value, unit) {
  if (value === null || value === undefined) return "–";
  const text = unit === "fraction" ? (100 * value).toFixed(2) : number(value, 3);
  return value > 0 ? `+${text}` : text.replace("-", "−");
}

export const unitOf = (unit) => (unit === "fraction" ? "points" : ["unit unknown", "nats", "text", ""].includes(unit) ? "" : unit);

// As the report words it, which never rounds a bound to the other side of zero; of an older summary, by its numbers.
export function differenceWords(one, unit) {
  if (one.words) return one.words.replaceAll("-", "−");
  if (one.difference === null || one.difference === undefined) return "–";
  const range = one.low === null || one.low === undefined ? "" : ` (${signed(one.low, unit)} to ${signed(one.high, unit)})`;
  return `${signed(one.difference, unit)}${range} ${unitOf(unit)}`.trim();
}

export function verdictPill(verdict) {
  const kind = { better: "complete", worse: "failed", "the same": "running" }[verdict] ?? "";
  return h("span", { class: `pill ${kind}` }, verdict);
}

export const when = (time) => h("time", { datetime: new Date(1000 * time).toISOString(), title: new Date(1000 * time).toLocaleString() }, ago(time, now()));

export const plural = (count, one, many = `${one}s`) => `${number(count)} ${count === 1 ? one : many}`;

// Draw again when the place of a picture changes its width.
export function drawnByWidth(element, draw) {
  let last = 0;
  const observer = new ResizeObserver(() => {
    const width = Math.floor(element.clientWidth);
    if (width && width !== last) { last = width; draw(width); }
  });
  observer.observe(element);
  return observer;
}

// A value as people read it: 0.008557955831030983 -> 0.00855796
export const short = (text) => (text === null || text === undefined ? "–" : text.length <= 10 || !Number.isFinite(Number(text)) ? text : String(Number(Number(text).toPrecision(6))));
