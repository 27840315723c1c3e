// A view that was saved as one file has what the server would answer in itself; `kept` is null on a served page.

const element = document.getElementById("kept");
export const kept = element ? JSON.parse(element.textContent) : null;

export function keptAnswer(path, parameters) {
  if (path === "api/series") return seriesOf(parameters.series);
  if (path === "api/where") return { ids: kept.answers["api/runs"].rows.map((row) => row.id) };
  if (path === "api/runs") return kept.answers[path];
  const key = [path, parameters.id, parameters.name].filter(Boolean).join(" ");
  const found = kept.answers[key];
  if (found === undefined) throw new Error("this was not kept in the saved view");
  if (parameters.q) return { lines: found.text.split("\n").filter((line) => line.toLowerCase().includes(parameters.q.toLowerCase())) };
  return found;
}

function seriesOf(asked) {
  const runs = {};
  for (const { run, metric, key } of asked) {
    const own = kept.series[run];
    if (!own) continue;
    runs[run] ??= { ...own, windows: [] };
    runs[run].windows.push(...own.windows.filter((one) => one.metric === metric && one.key === key));
  }
  return { runs, problems: {} };
}

export const pictureOf = (id, name) => (kept ? kept.pictures[name] ?? "data:," : `api/picture?${new URLSearchParams({ id, name })}`);
