// A series of the last minutes as a small curve. Shapes, not a canvas: each of those would be a layer of its own.

import { attribute } from "./dom.js";

const SVG = "http://www.w3.org/2000/svg";
const [WIDTH, HEIGHT] = [1000, 100];

function shape(tag, attributes, ...children) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) attribute(node, name, value);
  node.append(...children);
  return node;
}

export class Chart {
  /** `say(most)` is what screen readers hear; `tint` a class of the style sheet. */
  constructor(say, tint = "") {
    this.say = say;
    this.area = shape("path", { class: "area" });
    this.line = shape("path", { class: "line" });
    const size = { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none" };
    this.node = shape("svg", { class: `chart ${tint}`, role: "img", ...size }, this.area, this.line);
  }

  /** Draw `values` at `times` (ms) over the last `spanMs`; NaN where there was none. */
  draw(times, values, spanMs) {
    const end = times[times.length - 1];
    let [most, first, last, line] = [0, -1, -1, ""];
    for (const value of values) if (value > most) most = value;
    attribute(this.node, "aria-label", this.say(most));
    for (let index = 0; index < times.length; index++) {
      const value = values[index];
      if (value !== value) continue;
      last = Math.round(WIDTH * (1 - (end - times[index]) / spanMs));
      if (first < 0) first = last;
      line += `${line && "L"}${last} ${Math.round(HEIGHT * (1 - value / (most || 1)))}`;
    }
    attribute(this.line, "d", line && `M${line}`);
    attribute(this.area, "d", line && `M${line}V${HEIGHT}H${first}Z`);
  }
}
