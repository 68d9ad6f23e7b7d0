// The fleet in a few figures.

import { Chart } from "./chart.js";
import { el, text } from "./dom.js";
import { count, milliseconds, short } from "./format.js";
import { SPAN_MS } from "./model.js";

class Figure {
  constructor(parent, label, series, name, shown) {
    this.value = el("dd", { class: "sum" });
    this.beside = el("dd", { class: "figures" });
    this.chart = new Chart((most) => `${label} in the last five minutes, ${shown(most)} at most`);
    parent.append(el("div", {}, el("dt", {}, label), this.value, this.beside, el("dd", {}, this.chart.node)));
    Object.assign(this, { series, name });
  }

  show(value, beside = "") {
    text(this.value, value);
    text(this.beside, beside);
    this.chart.draw(this.series.times, this.series.of(this.name), SPAN_MS);
  }
}

export function totals(parent, model) {
  const figure = (label, name, shown) => new Figure(parent, label, model.series, name, shown);
  const tokens = figure("tokens a second", "tokens_per_s", short);
  const first = figure("time to first token", "first_token_ms", milliseconds);
  const held = figure("jobs with workers", "held", count);
  const waiting = figure("jobs waiting", "waiting", count);
  const dead = figure("jobs set aside", "dead", count);
  return () => {
    const { figures, first_tokens: firsts, shards } = model.look;
    tokens.show(short(figures.tokens_per_s));
    first.show(milliseconds(firsts.p50_ms), beside(firsts));
    const slots = model.workers.reduce((sum, worker) => sum + worker.slots, 0);
    const active = model.workers.filter((worker) => worker.state === "active").length;
    held.show(count(figures.held), `of ${count(slots)} slots, ${count(active)} workers active`);
    waiting.show(count(figures.waiting), wanted(shards, active));
    dead.show(count(figures.dead));
  };
}

function beside({ count: number, p95_ms: p95 }) {
  return number ? `half of ${count(number)}; 95 % within ${milliseconds(p95)}` : "none in the last minute";
}

/** How many workers the schedulers would like, where they say so. */
function wanted(shards, active) {
  const known = shards.map((shard) => shard.workers_wanted).filter((number) => number != null);
  const sum = known.reduce((total, number) => total + number, 0);
  return known.length && sum !== active ? `${count(sum)} active workers wanted` : "";
}
