// Each lane: how many jobs wait, how long the oldest has, and how that went.

import { Chart } from "./chart.js";
import { KeyedList, attribute, el, text } from "./dom.js";
import { count, milliseconds } from "./format.js";
import { SPAN_MS } from "./model.js";

function made(series) {
  return (lane) => {
    const [name, state] = [el("h3", { class: `priority ${lane.priority}` }), el("span")];
    const [depth, aside] = [1, 2].map(() => el("p", { class: "figures" }));
    const chart = new Chart((most) => `waiting in the last five minutes, ${count(most)} at most`, lane.priority);
    const node = el("li", {}, el("div", { class: "head" }, name, state), depth, chart.node, aside);
    return {
      node,
      update({ key, priority, depth: waiting, oldest_wait_ms: oldest, shard }) {
        text(name, `${shard.shard} ${priority}`);
        text(state, shard.led ? "" : "nobody leads it");
        attribute(state, "class", shard.led ? "state" : "state bad");
        text(depth, waiting ? `${count(waiting)} waiting, the oldest for ${milliseconds(oldest)}` : "empty");
        text(aside, `${shard.models.join(", ")}${shard.due ? `; ${count(shard.due)} delayed` : ""}`);
        chart.draw(series.times, series.of(key), SPAN_MS);
      },
    };
  };
}

export function lanes(parent, model) {
  const list = new KeyedList(parent, made(model.series));
  return () => list.show(model.lanes, (lane) => lane.key);
}
