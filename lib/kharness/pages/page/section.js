// The section of matrices and sweeps on the first page: is it better than my baseline?

import { h, number } from "../dom.js";
import { get, store } from "../net.js";
import { addressOf } from "../view.js";
import { differenceWords, plural, short, statusBar, verdictPill, when } from "./parts.js";

// Verdicts that a card has room for.
const SHOWN = 2;

// Seconds between two looks at the list.
const EVERY = 3;

export class MatrixSection {
  constructor() {
    this.element = h("section", { class: "matrices", "aria-label": "Matrices and sweeps", hidden: true });
    this.load();
  }

  async load() {
    if (this.isLoading) { this.isAsked = true; return; }
    this.isLoading = true;
    this.isAsked = false;
    try {
      this.draw((await get("api/kharness/matrices")).matrices);
    } catch { /* the page says that the server does not answer */ }
    setTimeout(() => {
      this.isLoading = false;
      if (this.isAsked && !document.hidden && this.element.isConnected) this.load();
    }, 1000 * EVERY);
  }

  draw(matrices) {
    const text = JSON.stringify([matrices, Math.floor(Date.now() / 60000)]);
    if (text === this.text) return;
    this.text = text;
    this.element.hidden = !matrices.length;
    const left = this.element.scrollLeft;
    this.element.replaceChildren(...matrices.map((one) => this.card(one)));
    this.element.scrollLeft = left;
  }

  card(one) {
    const link = h("a", { class: "name", href: addressOf({ matrix: one.id, run: "", zoom: null }) }, one.title);
    if (!one.counts) return h("article", { class: "matrix-card" }, link, h("span", { class: "pill error" }, one.problem));
    const { look } = one;
    const lines = [];
    if (one.kind === "sweep" && one.best) lines.push(h("span", { class: "line", title: Object.entries(one.best.values).map(([name, value]) => `${name} ${value}`).join(", ") }, h("b", {}, `best ${one.best.metric} ${number(one.best.mean)}`), h("span", { class: "soft small" }, ` ${Object.values(one.best.values).map(short).join(", ")}`)));
    else if (one.kind === "sweep") lines.push(h("span", { class: "soft small" }, `${plural(one.counts.complete ?? 0, "trial")} complete: best and rest`));
    else if (!look) lines.push(h("span", { class: "soft small" }, "no look is recorded yet"));
    else if (!look.shown.length) lines.push(h("span", { class: "soft small" }, look.compared ? `no difference from ${look.baseline} is shown` : "nothing is compared"));
    else {
      for (const shown of look.shown.slice(0, SHOWN)) lines.push(h("span", { class: "line" }, h("b", {}, shown.variant), " ", verdictPill(shown.verdict), h("span", { class: "soft small" }, ` ${differenceWords(shown, look.unit)}`)));
      if (look.shown.length > SHOWN) lines.push(h("span", { class: "soft small" }, `and ${look.shown.length - SHOWN} more`));
    }
    const foot = look && one.kind !== "sweep" ? [`${look.metric} against ${look.baseline}, looked `, when(look.recorded), look.since ? `; ${plural(look.since, "run")} since` : ""] : [`${one.model}, begun `, when(one.created)];
    return h("article", { class: "matrix-card" }, h("div", { class: "title" }, link, h("span", { class: "pill" }, one.kind)), statusBar(one.counts), lines, h("span", { class: "soft small foot" }, foot));
  }

  onRows() { if (store.rows.size || this.text) this.load(); }
}
