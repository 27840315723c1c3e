// Views that are saved in the folder of results: a name for what the address holds.

import { h, say } from "./dom.js";
import { get, post, store } from "./net.js";

const dialog = document.getElementById("views");

export async function openViews() {
  try {
    draw((await get("api/views")).views);
    dialog.showModal();
  } catch (error) {
    say(error.message);
  }
}

function draw(views) {
  const rows = Object.entries(views).map(([name, address]) => h("li", {}, h("a", { href: address, onclick: () => dialog.close() }, name),
    store.isReadOnly ? null : h("button", { type: "button", class: "quiet", "aria-label": `remove ${name}`, onclick: () => keep(name, null) }, "✕")));
  const name = h("input", { type: "text", "aria-label": "name of the view", placeholder: "a name for what is shown now", maxlength: "80", required: true });
  const form = h("form", { onsubmit: (event) => { event.preventDefault(); keep(name.value.trim(), location.hash || "#"); } }, name, h("button", { type: "submit", class: "primary" }, "Save"));
  dialog.replaceChildren(h("h2", { id: "views-title" }, "Saved views"), rows.length ? h("ul", { class: "views" }, rows) : h("p", { class: "soft" }, "None yet. A view is the filter, the runs, the columns, the axes: all that the address holds."),
    ...(store.isReadOnly ? [] : [form]), h("form", { method: "dialog" }, h("button", {}, "Close")));
}

async function keep(name, address) {
  try {
    draw((await post("api/views", { name, address })).views);
    say(address === null ? `${name} is removed` : `${name} is saved`);
  } catch (error) {
    say(error.message);
  }
}
