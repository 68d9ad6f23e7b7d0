// Elements, and changes of them that cost nothing where nothing has changed.

/** An element with its attributes and children. Attributes that are false, null or undefined are left out. */
export function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) attribute(node, name, value);
  node.append(...children);
  return node;
}

export function text(node, value) {
  const wanted = String(value);
  if (node.textContent !== wanted) node.textContent = wanted;
}

export function attribute(node, name, value) {
  const wanted = value === false || value == null ? null : value === true ? "" : String(value);
  if (node.getAttribute(name) === wanted) return;
  if (wanted === null) node.removeAttribute(name);
  else node.setAttribute(name, wanted);
}

/** A bar from 0 to 1 that screen readers know as a meter. */
export class Bar {
  constructor(label) {
    this.node = el("span", { class: "bar", role: "meter", "aria-label": label, "aria-valuemin": 0,
      "aria-valuemax": 100 });
    this.shown = -1;
  }

  /** With `levels` it turns yellow and red as it fills. */
  set(share, levels = true) {
    const percent = Math.round(100 * Math.min(1, Math.max(0, share)));
    if (percent === this.shown) return;
    this.shown = percent;
    this.node.setAttribute("aria-valuenow", percent);
    this.node.style.backgroundSize = `${percent}%`;
    const level = levels && percent >= 90 ? " bad" : levels && percent >= 75 ? " warn" : "";
    attribute(this.node, "class", `bar${level}`);
  }
}

/**
 * Children of `parent`, one for each key, in the order of the items. A node lives as long as its key: focus, scrolling
 * and open details outlast an update. `make(item)` gives `{node}`, with `update(item)` and `gone()` where it
 * has to hear of that.
 */
export class KeyedList {
  constructor(parent, make) {
    this.parent = parent;
    this.make = make;
    this.rows = new Map();
  }

  show(items, keyOf) {
    const wanted = new Map();
    for (const item of items) wanted.set(keyOf(item), item);
    for (const [key, row] of this.rows) if (!wanted.has(key)) this.remove(key, row);
    let next = this.parent.firstElementChild;
    for (const [key, item] of wanted) {
      let row = this.rows.get(key);
      if (!row) {
        row = this.make(item);
        this.rows.set(key, row);
      }
      row.update?.(item);
      if (row.node === next) next = next.nextElementSibling;
      else this.parent.insertBefore(row.node, next);
    }
  }

  remove(key, row) {
    this.rows.delete(key);
    row.gone?.();
    const near = row.node.contains(document.activeElement)
      ? row.node.nextElementSibling ?? row.node.previousElementSibling : null;
    row.node.remove();
    // Who was at the one that is gone goes on at its neighbour, not at the top of the page.
    near?.querySelector("button, summary")?.focus({ preventScroll: true });
  }
}
