// Runs that differ in the seed alone as one line: their mean, with the band from the lowest to the highest of all.

import { tellingOptions } from "./table.js";

const SEED = /(^|_)seed$/i;

export function overSeeds(lines) {
  const names = tellingOptions().filter((name) => !SEED.test(name));
  const groups = new Map();
  for (const line of lines) {
    const key = JSON.stringify([line.key, names.map((name) => line.run.options[name] ?? null)]);
    groups.set(key, [...(groups.get(key) ?? []), line]);
  }
  const differing = names.filter((name) => new Set(lines.map((line) => JSON.stringify(line.run.options[name]))).size > 1);
  return [...groups].map(([key, own]) => (own.length === 1 ? own[0] : mean(key, own, words(own, differing))));
}

function words(own, differing) {
  const options = own[0].run.options;
  const values = differing.filter((name) => name in options).map((name) => (typeof options[name] === "string" ? options[name] : `${name}=${options[name]}`));
  return `${values.join(", ") || own[0].run.name}, ${own.length} seeds`;
}

// Only where every run has something to say: a mean must not jump because a run has ended.
function mean(key, own, label) {
  const longest = own.reduce((a, b) => (b.x.length > a.x.length ? b : a));
  const from = Math.max(...own.map((line) => line.x[0] ?? Infinity));
  const to = Math.min(...own.map((line) => line.x.at(-1) ?? -Infinity));
  const x = longest.x.filter((at) => at >= from && at <= to);
  const places = own.map(() => 0);
  const found = { x, last: [], min: [], max: [], count: x.map(() => own.length) };
  for (const at of x) {
    const values = [];
    let [least, most] = [Infinity, -Infinity];
    own.forEach((line, which) => {
      let place = places[which];
      const value = between(line, at);
      for (; place < line.x.length && line.x[place] <= at; place++) {
        least = Math.min(least, line.min?.[place] ?? line.last[place] ?? Infinity);
        most = Math.max(most, line.max?.[place] ?? line.last[place] ?? -Infinity);
      }
      places[which] = place;
      if (value !== null) values.push(value);
    });
    const isWhole = values.length === own.length;
    found.last.push(isWhole ? values.reduce((a, b) => a + b) / own.length : null);
    found.min.push(isWhole ? Math.min(least, ...values) : null);
    found.max.push(isWhole ? Math.max(most, ...values) : null);
  }
  const coarse = own.some((line) => line.coarse);
  return { ...found, key: own[0].key, label, unit: "seeds", exact: false, coarse, run: { ...own[0].run, id: label, run_id: key, name: label } };
}

// The value at a place, on the straight line between two records.
function between(line, at) {
  const next = line.x.findIndex((one) => one >= at);
  if (next < 0 || line.last[next] === null) return null;
  if (line.x[next] === at || next === 0) return line.last[next];
  const before = line.last[next - 1];
  return before === null ? null : before + ((line.last[next] - before) * (at - line.x[next - 1])) / (line.x[next] - line.x[next - 1]);
}
