// Each worker: its load as bars, and its jobs.

import { Bar, KeyedList, attribute, el, text } from "./dom.js";
import { count, milliseconds, percent, short } from "./format.js";

const LEVELS = { active: "good", lost: "bad", stuck: "bad", failed: "bad" };
const ROWS = ["jobs", "load", "memory", "KV cache", "device"];
const OLD_REPORT_MS = 5_000;
/** Of a worker's jobs, the oldest: others are found by their ids. */
const MOST_DRAWN = 32;
/** So near the window, and a list is kept up to date: thousands of jobs change that nobody sees. */
const NEAR = "300px";

/** Workers whose cards are in sight, or nearly. */
const near = new WeakSet();
const sight = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    if (isIntersecting) near.add(target);
    else near.delete(target);
    if (isIntersecting) target.dispatchEvent(new Event("insight"));
  }
}, { rootMargin: NEAR });

class Row {
  constructor(label) {
    this.bar = new Bar(label);
    this.value = el("dd", { class: "number" });
    this.node = el("div", {}, el("dt", {}, label), el("dd", {}, this.bar.node), this.value);
  }

  /** Nothing is shown of what the engine does not tell. */
  set(share, value, levels) {
    attribute(this.node, "hidden", share == null);
    if (share == null) return;
    this.bar.set(share, levels);
    text(this.value, value);
  }
}

class Worker {
  constructor(jobs) {
    this.jobs = jobs;
    this.name = el("h3");
    this.state = el("span");
    this.figures = el("p", { class: "figures" });
    this.rows = Object.fromEntries(ROWS.map((name) => [name, new Row(name)]));
    this.summary = el("summary");
    this.list = el("ul", { class: "jobs", role: "list" });
    this.details = el("details", {}, this.summary, this.list);
    this.details.addEventListener("toggle", () => this.showJobs());
    this.buttons = new Map();
    const bars = el("dl", { class: "bars" }, ...Object.values(this.rows).map((row) => row.node));
    this.node = el("li", {}, el("div", { class: "head" }, this.name, this.state), bars, this.figures, this.details);
    this.node.addEventListener("insight", () => this.showJobs());
    sight.observe(this.node);
  }

  update(worker) {
    this.worker = worker;
    text(this.name, worker.label);
    text(this.state, worker.state);
    attribute(this.state, "class", `state ${LEVELS[worker.state] ?? "warn"}`);
    const { rows } = this;
    rows.jobs.set(worker.held / Math.max(1, worker.slots), `${count(worker.held)}/${count(worker.slots)}`, false);
    rows.load.set(worker.load_score, worker.load_score.toFixed(2));
    rows.memory.set(worker.memory, percent(worker.memory));
    rows["KV cache"].set(worker.kv, percent(worker.kv));
    rows.device.set(worker.device_utilisation, percent(worker.device_utilisation), false);
    text(this.figures, figures(worker));
    this.showJobs();
  }

  gone() {
    sight.unobserve(this.node);
  }

  showJobs() {
    const jobs = first(this.jobs(this.worker.key), MOST_DRAWN);
    text(this.summary, summary(this.worker.held, jobs.size));
    attribute(this.list, "aria-label", `Jobs of ${this.worker.label}`);
    if (!this.details.open) return this.buttons.size ? this.clear() : undefined;
    if (!near.has(this.node)) return undefined;
    for (const [job, item] of this.buttons) if (!jobs.has(job)) this.drop(job, item);
    for (const job of jobs) if (!this.buttons.has(job)) this.add(job);
  }

  add(job) {
    const button = el("button", { type: "button", class: "link", title: job }, job.split(".").slice(3).join("."));
    const item = el("li", {}, button);
    this.buttons.set(job, item);
    this.list.append(item);
  }

  drop(job, item) {
    this.buttons.delete(job);
    const other = item.nextElementSibling ?? item.previousElementSibling;
    const goOn = item.contains(document.activeElement);
    item.remove();
    // Who was at the one that is gone goes on beside it.
    if (goOn) (other?.firstElementChild ?? this.summary).focus({ preventScroll: true });
  }

  clear() {
    this.buttons.clear();
    this.list.replaceChildren();
  }
}

function first(jobs, count) {
  if (jobs.size <= count) return jobs;
  const found = new Set();
  for (const job of jobs) if (found.add(job).size === count) break;
  return found;
}

function summary(held, shown) {
  if (!held) return "no jobs";
  const all = `${count(held)} ${held === 1 ? "job" : "jobs"}`;
  return shown === held ? all : `${all}, ${count(shown)} shown`;
}

function figures(worker) {
  const { tokens_per_s: speed, running, capacity } = worker;
  const told = [`${short(speed)} tokens/s`, `engine ${count(running)}/${count(capacity)} running`];
  if (worker.waiting) told.push(`${count(worker.waiting)} waiting`);
  if (worker.device_temperature_c != null) told.push(`${Math.round(worker.device_temperature_c)} °C`);
  if (worker.report_age_ms > OLD_REPORT_MS) told.push(`silent for ${milliseconds(worker.report_age_ms)}`);
  return told.join(", ");
}

/** `onJob(id)` is called when somebody picks one. */
export function workers(parent, toggle, model, onJob) {
  const made = () => {
    const worker = new Worker((key) => model.jobs.get(key) ?? new Set());
    worker.details.open = toggle.checked;
    return worker;
  };
  const list = new KeyedList(parent, made);
  toggle.addEventListener("change", () => {
    for (const { details } of list.rows.values()) details.open = toggle.checked;
  });
  // One listener for all: ten thousand of them would cost as much as the rest.
  parent.addEventListener("click", ({ target }) => target.matches(".jobs button") && onJob(target.title));
  return () => list.show(model.workers, (worker) => worker.key);
}
