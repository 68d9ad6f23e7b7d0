// A series of the last minutes, drawn on a small canvas.

const styles = getComputedStyle(document.documentElement);
const colours = new Map();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => colours.clear());

function colour(name) {
  if (!colours.has(name)) colours.set(name, styles.getPropertyValue(name));
  return colours.get(name);
}

// How wide each canvas is: asking for it in mid-update would lay out the page anew.
const widths = new WeakMap();
const observer = new ResizeObserver((entries) => {
  for (const { target, contentRect } of entries) widths.set(target, [contentRect.width, contentRect.height]);
});

export class Chart {
  /** `say(most)` is what screen readers hear; `tint` a colour's name in the style sheet. */
  constructor(say, tint = "--accent") {
    this.node = document.createElement("canvas");
    this.node.setAttribute("role", "img");
    this.say = say;
    this.tint = tint;
    observer.observe(this.node);
  }

  close() {
    observer.unobserve(this.node);
  }

  /** Draw `values` at `times` (ms), both rings' contents in order, over the last `spanMs`. */
  draw(times, values, spanMs) {
    const [width, height] = widths.get(this.node) ?? [0, 0];
    const heard = this.say(Math.max(0, ...values.filter((value) => value === value)));
    if (this.node.getAttribute("aria-label") !== heard) this.node.setAttribute("aria-label", heard);
    if (!width || !times.length) return;
    const scale = devicePixelRatio || 1;
    const [across, down] = [Math.round(width * scale), Math.round(height * scale)];
    if (this.node.width !== across) this.node.width = across;
    if (this.node.height !== down) this.node.height = down;
    // Drawn by the processor: what is painted by the graphics card is a layer, and others beside it become some too.
    const pen = this.node.getContext("2d", { willReadFrequently: true });
    this.trace(pen, across, down, times, values, spanMs);
  }

  trace(pen, width, height, times, values, spanMs) {
    const end = times[times.length - 1];
    const most = values.reduce((found, value) => (value > found ? value : found), 1);
    const at = (index) => [width * (1 - (end - times[index]) / spanMs), (height - 2) * (1 - values[index] / most) + 1];
    pen.clearRect(0, 0, width, height);
    pen.beginPath();
    let first, last;
    for (let index = 0; index < times.length; index++) {
      if (values[index] !== values[index]) continue;
      const [x, y] = at(index);
      if (first === undefined) pen.moveTo(first = x, y);
      else pen.lineTo(x, y);
      last = x;
    }
    pen.strokeStyle = pen.fillStyle = colour(this.tint);
    pen.lineWidth = 1.5 * (devicePixelRatio || 1);
    pen.stroke();
    if (first === undefined) return;
    pen.lineTo(last, height);
    pen.lineTo(first, height);
    pen.globalAlpha = 0.15;
    pen.fill();
    pen.globalAlpha = 1;
  }
}
