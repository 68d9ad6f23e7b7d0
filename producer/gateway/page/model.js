// What is known of the fleet: the last look, the jobs of each worker, and how the figures went in the last minutes.

export const SPAN_MS = 5 * 60_000;
const MOST_POINTS = 320;

/** Series with common times. Each has as many values as there are times; NaN where there was none. */
export class Series {
  constructor() {
    this.times = [];
    this.values = new Map();
  }

  /** Take what the gateway saw before this page came. */
  load(history) {
    this.times = history.times.slice(-MOST_POINTS);
    this.values = new Map(Object.entries(history.series).map(([name, values]) =>
      [name, values.slice(-MOST_POINTS).map((value) => value ?? NaN)]));
  }

  note(time, figures) {
    for (const name of Object.keys(figures)) {
      if (!this.values.has(name)) this.values.set(name, new Array(this.times.length).fill(NaN));
    }
    this.times.push(time);
    for (const [name, values] of this.values) values.push(figures[name] ?? NaN);
    while (this.times.length > MOST_POINTS || this.times[0] < time - SPAN_MS) this.drop();
  }

  of(name) {
    return this.values.get(name) ?? [];
  }

  drop() {
    this.times.shift();
    for (const [name, values] of this.values) {
      values.shift();
      if (values.every(Number.isNaN)) this.values.delete(name);
    }
  }
}

export class Model {
  constructor() {
    this.series = new Series();
    /** Key of a worker → its jobs' ids, the oldest assignment first. */
    this.jobs = new Map();
    this.look = null;
  }

  /** One message of the stream: a whole look, or what changed since the one before. */
  take(message) {
    const jobs = new Map();
    for (const shard of message.shards) {
      for (const worker of shard.workers) {
        worker.key = `${shard.shard}/${worker.id}`;
        worker.shard = shard.shard;
        jobs.set(worker.key, this.jobsOf(worker));
      }
    }
    this.jobs = jobs;
    this.look = message;
    // A history has this look already.
    if (message.history) this.series.load(message.history);
    else this.series.note(message.now_ms, message.figures);
  }

  /** `jobs` are all of them; else `gone` and `added` change those that were. */
  jobsOf(worker) {
    if (worker.jobs) return new Set(worker.jobs);
    const jobs = this.jobs.get(worker.key) ?? new Set();
    for (const job of worker.gone ?? []) jobs.delete(job);
    for (const job of worker.added ?? []) jobs.add(job);
    return jobs;
  }

  get workers() {
    return this.look.shards.flatMap((shard) => shard.workers);
  }

  /** A worker that is gone is called by its id. */
  labelOf(id) {
    return this.workers.find((worker) => worker.id === id)?.label ?? id;
  }

  get lanes() {
    return this.look.shards.flatMap((shard) =>
      Object.entries(shard.lanes).map(([priority, lane]) =>
        ({ ...lane, priority, shard, key: `${shard.shard}/${priority}` })));
  }
}
