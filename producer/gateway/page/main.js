// The live page: reads the stream of looks at the fleet, and shows each.

import { batches, dead } from "./batches.js";
import { JobView } from "./job.js";
import { lanes } from "./lanes.js";
import { clock } from "./format.js";
import { Model } from "./model.js";
import { Refused, events, key } from "./stream.js";
import { attribute, text } from "./dom.js";
import { totals } from "./totals.js";
import { workers } from "./workers.js";

const [FIRST_PAUSE_MS, LONGEST_PAUSE_MS] = [500, 15_000];
/** So long without a look, and the page says so: there is one each second. */
const SILENT_MS = 8_000;

const at = (id) => document.getElementById(id);
const model = new Model();
const job = new JobView({ form: at("find"), input: at("job-id"), problem: at("find-problem"), article: at("job"),
  labelOf: (id) => model.labelOf(id) });
const openJob = (id) => job.open(id);
const views = [
  totals(at("totals"), model),
  lanes(at("lanes"), model),
  workers(at("workers"), at("open-jobs"), model, openJob),
  batches(at("batches"), model),
  dead(at("dead"), model, openJob),
];
let reading = new AbortController();
let spentMs = 0;
let drawn = true;

function tell(line, broken = false) {
  text(at("connection"), line);
  attribute(at("connection"), "class", broken ? "broken" : null);
}

function show() {
  const began = performance.now();
  drawn = true;
  for (const view of views) view();
  document.title = `Fleet, ${model.look.figures.waiting} waiting`;
  spentMs += performance.now() - began;
  document.dispatchEvent(new CustomEvent("fleet", { detail: { ms: spentMs, at: model.look.now_ms } }));
  spentMs = 0;
  job.refresh();
}

function take(data) {
  const began = performance.now();
  model.take(JSON.parse(data));
  spentMs += performance.now() - began;
  // In the background nothing is drawn, and the last look is all that is kept.
  if (drawn) requestAnimationFrame(show);
  drawn = false;
}

/** Read one stream to its end: whether it had anything, and with which words it was refused. */
async function readOnce() {
  let any = false;
  let refusal = "";
  let timer;
  const silent = new AbortController();
  const signal = AbortSignal.any([reading.signal, silent.signal]);
  const wait = () => {
    clearTimeout(timer);
    timer = setTimeout(() => silent.abort(), SILENT_MS);
  };
  try {
    wait();
    for await (const { name, data } of events("fleet/events", signal)) {
      wait();
      if (name === "away") tell(JSON.parse(data).message, true);
      else if (name === "look") {
        if (!any) welcome();
        any = true;
        take(data);
        tell("live");
      }
    }
  } catch (error) {
    if (error instanceof Refused && error.status === 401) throw error;
    if (error instanceof Refused) refusal = error.message;
    else if (error.name !== "AbortError" && error.name !== "TypeError") throw error;
  } finally {
    clearTimeout(timer);
  }
  return { any, refusal };
}

/** Why there is no newer look. */
function why(refusal) {
  if (!model.look) return refusal || "the gateway does not answer";
  return `${refusal || "broken off"}; as of ${clock(model.look.now_ms)}`;
}

function welcome() {
  at("login").hidden = true;
  at("fleet").hidden = false;
  at("forget").hidden = !key.get();
  if (!job.id) job.openNamed();
}

function askForKey(message) {
  reading.abort();
  const known = key.get();
  key.set("");
  job.close();
  at("fleet").hidden = true;
  at("forget").hidden = true;
  at("login").hidden = false;
  text(at("refusal"), known ? message : "");
  tell("a key is needed");
  at("key").focus();
}

async function read() {
  reading = new AbortController();
  const { signal } = reading;
  for (let pause = FIRST_PAUSE_MS; !signal.aborted; pause = Math.min(2 * pause, LONGEST_PAUSE_MS)) {
    let ended;
    try {
      ended = await readOnce();
    } catch (error) {
      if (error instanceof Refused) return askForKey(error.message);
      throw error;
    }
    if (signal.aborted) return;
    if (ended.any) pause = FIRST_PAUSE_MS;
    tell(why(ended.refusal), true);
    await new Promise((resolve) => setTimeout(resolve, pause));
  }
}

at("login").addEventListener("submit", (event) => {
  event.preventDefault();
  key.set(at("key").value.trim());
  at("key").value = "";
  tell("connecting");
  read();
});
at("forget").addEventListener("click", () => {
  key.set("");
  askForKey("");
});
read();
