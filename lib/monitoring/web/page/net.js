// Talks to the server: requests, and changes as they come (server-sent events, or a look every 5 seconds).

import { kept, keptAnswer } from "./kept.js";
import { view } from "./view.js";

// `rows` are what is shown: those of now (`live`), or of the moment that the view names.
export const store = {
  rows: new Map(), live: new Map(), options: [], metrics: {}, version: 0, epoch: 0, folders: [], problems: [], isComplete: false,
  isReadOnly: false, skew: 0, isLive: false, isLost: false, lost: 0,
};

const listeners = [];
export const onRows = (listener) => listeners.push(listener);

export const now = () => view.at ?? kept?.saved ?? Date.now() / 1000 + store.skew;

async function answer(response) {
  const content = await response.json().catch(() => ({ error: response.statusText || `status ${response.status}` }));
  if (!response.ok) {
    const error = new Error(content.error || `status ${response.status}`);
    error.hint = content.hint || "";
    error.status = response.status;
    throw error;
  }
  return content;
}

export async function get(path, parameters = {}) {
  if (kept) return keptAnswer(path, parameters);
  return answer(await fetch(`${path}?${new URLSearchParams(parameters)}`, { credentials: "same-origin" }));
}

const send = (path, content) => fetch(path, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(content), credentials: "same-origin" });

export async function post(path, content) {
  return kept ? keptAnswer(path, content) : answer(await send(path, content));
}

export async function blobOf(path, parameters) {
  if (kept) throw new Error("this was not kept in the saved view");
  const response = await fetch(`${path}?${new URLSearchParams(parameters)}`, { credentials: "same-origin" });
  return response.ok ? response.blob() : answer(response);
}

// A file that the server makes of the view.
export async function fileOf(path, content) {
  const response = await send(path, content);
  return response.ok ? response.blob() : answer(response);
}

function take(changes) {
  if (changes.whole) store.live.clear();
  const changed = new Set(changes.gone);
  for (const id of changes.gone) store.live.delete(id);
  for (const row of changes.rows) {
    store.live.set(row.id, row);
    changed.add(row.id);
  }
  if (!view.at) store.rows = store.live;
  Object.assign(store, {
    options: changes.options, metrics: changes.metrics, version: changes.version, epoch: changes.epoch,
    folders: changes.folders, problems: changes.problems, isComplete: changes.all_read,
    isReadOnly: changes.read_only, skew: changes.now - Date.now() / 1000, isLost: false,
  });
  if (view.at && !store.past) pastRows();
  for (const listener of listeners) listener(view.at ? new Set() : changed, changes.whole && !view.at);
}

// The rows of the moment that the view names; of a slider that is moved on the last one is asked for.
export async function pastRows() {
  const at = view.at;
  if (at === null) {
    store.past = null;
    if (store.rows === store.live) return;
    store.rows = store.live;
  } else {
    if (store.isAsking) { store.isAskedAgain = true; return; }
    store.isAsking = true;
    try {
      const found = await get("api/runs", { at });
      store.rows = new Map(found.rows.map((row) => [row.id, row]));
      store.past = at;
    } catch (error) {
      store.past ??= at;
      store.problems = [error.message];
    } finally {
      store.isAsking = false;
    }
    if (store.isAskedAgain || view.at !== at) { store.isAskedAgain = false; pastRows(); return; }
  }
  for (const listener of listeners) listener(new Set(store.rows.keys()), true);
}

function tell() {
  for (const listener of listeners) listener(new Set(), false);
}

export async function begin() {
  if (kept) { take(kept.answers["api/runs"]); return; }
  let source = null;
  let retries = 0;
  const look = async () => {
    try {
      take(await get("api/runs", { since: store.version, epoch: store.epoch }));
      return true;
    } catch (error) {
      store.isLost = true;
      store.isLive = false;
      store.lostWhy = error.status === 401 ? "open the address that the terminal printed" : "the server does not answer";
      tell();
      return false;
    }
  };
  const listen = () => {
    source = new EventSource(`api/live?since=${store.version}&epoch=${store.epoch}`);
    source.onmessage = (event) => {
      retries = 0;
      store.isLive = true;
      take(JSON.parse(event.data));
    };
    source.onopen = () => { store.isLive = true; store.isLost = false; tell(); };
    // A restarted server numbers its changes anew: the browser's own retry would ask for the old ones.
    source.onerror = () => {
      source?.close();
      source = null;
      store.isLive = false;
      retries++;
      again(0);
    };
  };
  // Every second at first, as for a server that is started again, then every five.
  let waiting = 0;
  const again = (seconds) => {
    clearTimeout(waiting);
    waiting = setTimeout(async () => {
      if (source || document.hidden) return;
      const isThere = await look();
      if (isThere && retries < 100) listen();
      else again(isThere || store.lost++ > 60 ? 5 : 1);
      if (isThere) store.lost = 0;
    }, 1000 * seconds);
  };
  if (await look() && !document.hidden) listen();
  else again(1);
  // A page that nobody sees costs nothing.
  document.addEventListener("visibilitychange", async () => {
    if (document.hidden) {
      source?.close();
      source = null;
    } else if (!source && await look()) listen();
  });
}
