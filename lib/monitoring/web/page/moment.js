// The slider that shows all runs as they stood at a moment. Times in which nothing ran take no room on it.

import { date, duration, h } from "./dom.js";
import { kept } from "./kept.js";
import { store } from "./net.js";
import { change, view } from "./view.js";

const PLACES = 1000;

// A run that was seen alone for an instant still has some room, in seconds.
const LEAST = 1;

export class Moment {
  constructor(place) {
    this.place = place;
    this.button = document.getElementById("moment-button");
    this.range = h("input", { type: "range", min: "0", max: String(PLACES), step: "1", "aria-label": "moment that is shown", oninput: () => this.choose(Number(this.range.value)) });
    this.told = h("output", { class: "number" });
    this.play = h("button", { type: "button", onclick: () => this.run(!this.timer) }, "▶ Play");
    this.now = h("button", { type: "button", onclick: () => { this.run(false); change({ at: null }); } }, "Now");
    const close = h("button", { type: "button", class: "quiet", "aria-label": "close, and show now", onclick: () => this.toggle() }, "✕");
    for (const one of kept ? [this.play, this.range, this.now, close] : []) one.hidden = true;
    place.append(this.play, this.range, this.told, this.now, close);
    this.isOpen = false;
    this.draw();
  }

  toggle() {
    this.isOpen = !this.isOpen && !view.at;
    this.run(false);
    if (view.at) change({ at: null });
    this.draw();
    if (this.isOpen) this.range.focus();
    else if (this.place.contains(document.activeElement)) this.button.focus();
  }

  // The stretches in which something ran, of the run that is shown or of all.
  stretches() {
    const rows = view.run && store.live.has(view.run) ? [store.live.get(view.run)] : [...store.live.values()];
    const lives = rows.filter((row) => row.started && row.updated).map((row) => [row.started, Math.max(row.updated, row.started + LEAST)]).sort((a, b) => a[0] - b[0]);
    const found = [];
    for (const [from, to] of lives) {
      const last = found.at(-1);
      if (last && from <= last[1]) last[1] = Math.max(last[1], to);
      else found.push([from, to]);
    }
    return found;
  }

  momentAt(share) {
    const stretches = this.stretches();
    let rest = share * stretches.reduce((sum, [from, to]) => sum + to - from, 0);
    for (const [from, to] of stretches) {
      if (rest <= to - from) return from + rest;
      rest -= to - from;
    }
    return stretches.at(-1)?.[1] ?? null;
  }

  shareOf(moment) {
    const stretches = this.stretches();
    const whole = stretches.reduce((sum, [from, to]) => sum + to - from, 0) || 1;
    return stretches.reduce((sum, [from, to]) => sum + Math.max(0, Math.min(moment, to) - from), 0) / whole;
  }

  // At its right end the slider is at now, and goes on with it.
  choose(place) {
    change({ at: place >= PLACES ? null : this.momentAt(place / PLACES) });
  }

  run(isOn) {
    clearInterval(this.timer);
    this.timer = 0;
    if (isOn) {
      let place = view.at ? Number(this.range.value) : 0;
      this.timer = setInterval(() => {
        if (store.isAsking || document.hidden) return;
        place = Math.min(PLACES, place + PLACES / 100);
        if (place >= PLACES) this.run(false);
        this.choose(place);
      }, 200);
    }
    this.play.textContent = isOn ? "❚❚ Pause" : "▶ Play";
  }

  draw() {
    const isShown = this.isOpen || view.at !== null;
    this.place.hidden = !isShown;
    this.button.setAttribute("aria-expanded", String(isShown));
    document.body.classList.toggle("past", view.at !== null);
    if (!isShown) return;
    if (document.activeElement !== this.range || view.at === null) this.range.value = String(view.at ? Math.round(PLACES * this.shareOf(view.at)) : PLACES);
    const last = this.stretches().at(-1)?.[1];
    const text = view.at ? `${date(view.at)}${last > view.at ? `, ${duration(last - view.at)} before the last record` : ""}` : "now";
    this.told.textContent = text;
    this.range.setAttribute("aria-valuetext", text);
    this.now.disabled = view.at === null;
  }
}
