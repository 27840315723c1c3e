// Hands a profiler's trace to Perfetto's page, which says when it listens: "PING" until it answers "PONG".

export const PERFETTO = "https://ui.perfetto.dev";

const EVERY = 100;
const PATIENCE = 60000;

export async function openInPerfetto(name, blob, target) {
  if (!target) throw new Error("the browser has opened no window for Perfetto");
  const buffer = await blob.arrayBuffer();
  await new Promise((done, failed) => {
    const until = Date.now() + PATIENCE;
    const asking = setInterval(() => {
      if (target.closed || Date.now() > until) { stop(); failed(new Error("Perfetto does not answer; save the trace instead")); }
      else target.postMessage("PING", PERFETTO);
    }, EVERY);
    const heard = (event) => { if (event.origin === PERFETTO && event.data === "PONG") { stop(); done(); } };
    const stop = () => { clearInterval(asking); removeEventListener("message", heard); };
    addEventListener("message", heard);
  });
  target.postMessage({ perfetto: { buffer, title: name, fileName: name } }, PERFETTO);
}
