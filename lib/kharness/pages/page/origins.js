// Options of the chosen runs side by side, with who asked for each value.

import { h, swatch } from "../dom.js";
import { post, store } from "../net.js";

export async function origins(ids) {
  const { options, configured } = await post("api/kharness/options", { ids });
  if (!configured.some(Boolean)) return null;
  const head = h("tr", {}, h("th", { scope: "col" }, "option"), ids.map((id) => h("th", { scope: "col" }, swatch(store.rows.get(id)?.run_id ?? id), ` ${store.rows.get(id)?.name ?? id}`)), h("th", { scope: "col" }, "affects"));
  const body = options.map((one) => h("tr", {}, h("th", { scope: "row" }, one.name), one.values.map((value, at) => h("td", {}, h("div", { class: "value" }, value ?? "–"), h("div", { class: "soft small" }, one.origins[at] ?? ""))), h("td", { class: "soft small" }, one.affects.join(", "))));
  return h("section", { class: "card", "aria-label": "options and who asked for them" }, h("h2", {}, "Options that differ, and who asked for them"),
    h("div", { class: "wide-table", tabindex: "0", role: "region", "aria-label": "table of options and who asked for them" }, h("table", { class: "plain" }, h("thead", {}, head), h("tbody", {}, body.length ? body : h("tr", {}, h("td", {}, "Their options are the same."))))));
}
