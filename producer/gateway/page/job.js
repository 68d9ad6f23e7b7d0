// One job: found by its id, its life as a timeline, its tokens where the key allows.

import { KeyedList, el, text } from "./dom.js";
import { clock, count, milliseconds, moment } from "./format.js";
import { stepsOf, stretches } from "./life.js";
import { ask } from "./stream.js";
import { follow } from "./tokens.js";

const ENDED = new Set(["completed", "failed", "cancelled", "expired"]);
const HASH = "#job=";

/** What a part of an address stands for; nothing where it is malformed. */
function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return "";
  }
}

function step({ at, what, bad, after }) {
  const when = el("span", { class: "dim" }, `${clock(at)}, after ${after}`);
  return { node: el("li", { class: bad && "bad" }, `${what} `, when) };
}

export class JobView {
  /** `labelOf(id)` is what people call a worker. */
  constructor({ form, input, problem, article, labelOf }) {
    Object.assign(this, { input, problem, article, labelOf });
    this.id = null;
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.open(input.value.trim());
    });
  }

  /** The job that the page's address names. */
  openNamed() {
    const id = location.hash.startsWith(HASH) && decoded(location.hash.slice(HASH.length));
    if (id) this.open(id, false);
  }

  async open(id, focus = true) {
    this.close();
    this.id = this.input.value = id;
    history.replaceState(null, "", HASH + encodeURIComponent(id));
    const job = await this.read();
    if (!job || this.id !== id) return;
    this.build(id, job);
    if (focus) this.article.focus();
  }

  close() {
    this.following?.abort();
    this.id = this.job = null;
    this.article.hidden = true;
    this.article.replaceChildren();
    text(this.problem, "");
    history.replaceState(null, "", location.pathname);
  }

  /** The fleet has changed: so may the job have. */
  async refresh() {
    if (!this.job || this.reading || ENDED.has(this.job.state)) return;
    const { id } = this;
    const job = await this.read();
    if (job && this.id === id) this.show(job);
  }

  async read() {
    this.reading = true;
    try {
      const job = await (await ask(`fleet/jobs/${encodeURIComponent(this.id)}`)).json();
      text(this.problem, "");
      return { ...job, worker: this.labelOf(job.worker) };
    } catch (error) {
      text(this.problem, error.message);
      return null;
    } finally {
      this.reading = false;
    }
  }

  build(id, job) {
    this.state = el("p", { role: "status" });
    this.facts = el("dl", { class: "facts" });
    this.stretch = el("div", { class: "stretch", "aria-hidden": "true" });
    this.parts = el("p", { class: "figures" });
    const life = el("ol", { class: "life", "aria-label": "Its life" });
    this.life = new KeyedList(life, step);
    this.told = el("p", { role: "status" });
    this.tokens = el("div", { id: "tokens", tabindex: 0, role: "region", "aria-label": "Its text" });
    const [showText, close] = ["Show its text", "Close"].map((words) => el("button", { type: "button" }, words));
    showText.addEventListener("click", () => this.follow());
    close.addEventListener("click", () => {
      this.close();
      this.input.focus();
    });
    const title = el("h3", { id: "job-title" }, id);
    this.article.replaceChildren(title, this.state, this.stretch, this.parts, life, this.facts,
      el("p", {}, showText, " ", close), this.told, this.tokens);
    this.article.hidden = false;
    this.show(job);
  }

  show(job) {
    this.job = job;
    text(this.state, job.place == null ? job.state : `${job.state}, ${count(job.place)} before it`);
    this.showTimes(job);
    const facts = { model: job.model, endpoint: job.endpoint, attempt: job.attempt || "", strikes: count(job.strikes),
      worker: job.worker, deadline: job.deadline_ms ? moment(job.deadline_ms) : "" };
    const shown = Object.entries(facts).filter(([, value]) => value);
    this.facts.replaceChildren(...shown.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))));
  }

  showTimes(job) {
    const parts = stretches(job, job.now_ms);
    const whole = parts.reduce((sum, { ms }) => sum + ms, 0) || 1;
    this.stretch.replaceChildren(...parts.map(({ name, ms }) => {
      const part = el("i", { class: name });
      part.style.width = `${(100 * ms) / whole}%`;
      return part;
    }));
    this.parts.replaceChildren(...parts.flatMap(({ name, ms }) =>
      [el("i", { class: `dot ${name}` }), `${name} ${milliseconds(ms)} `]));
    const steps = stepsOf(job).map((step) => ({ ...step, after: milliseconds(step.at - job.submitted_ms) }));
    this.life.show(steps, ({ at, what }) => `${at} ${what}`);
  }

  follow() {
    this.following?.abort();
    this.following = new AbortController();
    this.tokens.replaceChildren();
    text(this.told, "");
    follow(this.id, this.tokens, (line) => text(this.told, line), this.following.signal);
  }
}
