// Small helpers: elements (text is always text), and numbers, times and sizes that a person can read.

export function h(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name in element && typeof value !== "string") element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

export const replace = (element, ...children) => element.replaceChildren(...children.flat().filter(Boolean));

const partOf = (node) => node.dataset?.part ?? node.dataset?.id ?? "";
const CLICKED = "a, button, input, select, textarea, form, summary";

// Makes the children those that are given, and leaves in its place what is there already: whoever presses a link while
// a run is being written clicks it, and no focus is lost. Its listeners stay, too, so they look at the view as it is;
// what can be clicked and has changed is the same only by its name, data-part or data-id.
export function update(element, ...children) {
  const wanted = children.flat().filter(Boolean);
  const parts = new Map([...element.children].filter(partOf).map((one) => [partOf(one), one]));
  for (const one of wanted) parts.delete(partOf(one));
  for (const one of parts.values()) one.remove();
  let old = element.firstChild;
  for (const one of wanted) {
    const moved = partOf(one) && old && partOf(old) !== partOf(one) ? [...element.children].find((other) => partOf(other) === partOf(one)) : null;
    const kept = moved ?? old;
    if (moved) element.insertBefore(moved, old);
    else if (!old || (partOf(old) && partOf(old) !== partOf(one))) { element.insertBefore(one, old); continue; }
    else old = old.nextSibling;
    if (kept === one) continue;
    if (kept.nodeName !== one.nodeName || partOf(kept) !== partOf(one) || (!partOf(one) && one.matches?.(CLICKED) && !kept.isEqualNode(one))) kept.replaceWith(one);
    else if (one.nodeType === Node.TEXT_NODE) { if (kept.data !== one.data) kept.data = one.data; }
    else {
      for (const { name } of [...kept.attributes]) if (!one.hasAttribute(name)) kept.removeAttribute(name);
      for (const { name, value } of one.attributes) {
        if (kept.getAttribute(name) === value) continue;
        if (name === "style") kept.style.cssText = value;  // the policy refuses the attribute
        else kept.setAttribute(name, value);
      }
      if (one.type === "checkbox") kept.checked = one.checked;
      update(kept, ...one.childNodes);
    }
  }
  while (old) {
    const next = old.nextSibling;
    old.remove();
    old = next;
  }
}

export function say(text) {
  const said = document.getElementById("said");
  said.textContent = text;
  clearTimeout(say.timer);
  say.timer = setTimeout(() => { said.textContent = ""; }, 3000);
}

export async function copy(text, what) {
  try {
    await navigator.clipboard.writeText(text);
    say(`copied: ${what || text}`);
  } catch {
    say(`it could not be copied: ${text}`);
  }
}

export function save(name, content, type) {
  const blob = content instanceof Blob ? content : new Blob([content], { type });
  const link = h("a", { href: URL.createObjectURL(blob), download: name.replace(/[^\w.-]+/g, "_") });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

// What `toLocaleString` makes for each call anew takes twenty times as long.
const inThousands = new Intl.NumberFormat("en-US");
const dateAndTime = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });

// 0.02177145 -> 0.02177; 6430.44 -> 6430; 61706 -> 61,706; 2e-7 -> 2e-7
export function number(value, digits = 4) {
  if (value === null || value === undefined) return "–";
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (typeof value !== "number") return String(value);
  if (Number.isInteger(value) && Math.abs(value) < 1e9) return inThousands.format(value);
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-4 || size >= 1e9)) return value.toExponential(digits - 2).replace(/\.?0+e/, "e").replace("e+", "e");
  if (size >= 10 ** (digits - 1)) return inThousands.format(Math.round(value));
  return String(Number(value.toPrecision(digits)));
}

export function withUnit(value, unit) {
  if (value === null || value === undefined) return "–";
  if (unit === "fraction") return `${number(100 * value)} %`;
  const shown = number(value);
  return unit && !["unit unknown", "text", "nats", "from 1"].includes(unit) ? `${shown} ${unit}` : shown;
}

export function duration(seconds) {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return "–";
  if (seconds < 1) return `${number(seconds, 2)} s`;
  if (seconds < 60) return `${Math.round(seconds)} s`;
  const minutes = Math.round(seconds / 60);
  if (minutes < 60) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return `${hours} h ${minutes % 60} min`;
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

export function ago(time, now) {
  if (!time) return "–";
  const seconds = now - time;
  if (seconds < -60) return date(time);
  return seconds < 5 ? "now" : `${duration(seconds)} ago`;
}

export function date(time) {
  if (!time) return "–";
  return dateAndTime.format(1000 * time);
}

export function bytes(count) {
  const units = ["bytes", "kB", "MB", "GB", "TB"];
  let place = 0;
  while (count >= 1000 && place < units.length - 1) { count /= 1000; place++; }
  return `${number(count, 3)} ${units[place]}`;
}

// A run's color is made from its id alone, so that it is its own for ever, in every chart and after every reload.
export const color = (runId) => (matchMedia("(prefers-color-scheme: dark)").matches ? ON_DARK : ON_LIGHT)[hashOf(runId) % 16];

// Sixteen that are told apart, also by who does not see red or green; tests/monitoring/web/test_page.py has how far.
const ON_LIGHT = ["#2ca097", "#0b4a7a", "#4996f5", "#3363c3", "#6f18e2", "#be26f2", "#96659d", "#9e0799", "#6e285e", "#fe4bc0", "#db1c62", "#d57573", "#a51105", "#886e1f", "#26a822", "#1c5f31"];
const ON_DARK = ["#13dcf6", "#3a99ba", "#1660fa", "#93adfe", "#8451c9", "#c075fd", "#c004a2", "#fe4bc0", "#b16989", "#e9979d", "#df2414", "#b2912e", "#dfcf81", "#78e400", "#1d7e1a", "#1abb76"];

const hashOf = (runId) => {
  let hash = 2166136261;
  for (const letter of runId) hash = Math.imul(hash ^ letter.codePointAt(0), 16777619);
  hash = Math.imul(hash ^ (hash >>> 15), 2246822519);
  return (hash ^ (hash >>> 13)) >>> 0;
};

// Of runs that are drawn and have the same color the first has a whole line, the others dashes.
export function dashes(runIds) {
  const counts = new Map();
  return new Map([...new Set(runIds)].map((runId) => {
    const place = hashOf(runId) % 16;
    const before = counts.get(place) ?? 0;
    counts.set(place, before + 1);
    return [runId, before ? [[7, 4], [2, 3], [10, 3, 2, 3]][(before - 1) % 3] : null];
  }));
}

export const swatch = (runId, isOn = true, dash = null) => {
  const dot = h("span", { class: "swatch", "aria-hidden": "true" });
  const own = color(runId);
  if (isOn) dot.style.background = dash ? `repeating-linear-gradient(90deg, ${own} 0 ${dash[0] / 2}px, transparent 0 ${(dash[0] + dash[1]) / 2}px)` : own;
  return dot;
};
