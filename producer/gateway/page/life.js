// A job's life as steps and stretches of time: pure.

const END = { completed: "completed", failed: "failed", cancelled: "cancelled", expired: "expired" };

/** What happened, in order: `{at, what, bad}` with times in ms of Redis's clock. */
export function stepsOf(job) {
  const found = [{ at: job.submitted_ms, what: `submitted by ${job.tenant}, ${job.priority} priority` }];
  for (const { attempt, worker, why, fault, at_ms: at } of job.history) {
    const how = why || { try: "the engine failed it", strike: "its engine or worker died" }[fault] || "given back";
    const from = worker ? ` from ${worker}` : "";
    found.push({ at, what: `attempt ${attempt} came back${from}: ${how}`, bad: fault !== "none" });
  }
  if (job.ripe_ms) found.push({ at: job.ripe_ms, what: "its delay ended" });
  if (job.assigned_ms) found.push({ at: job.assigned_ms, what: assigned(job) });
  if (job.started_ms) found.push({ at: job.started_ms, what: "started on the engine" });
  if (job.first_token_ms) found.push({ at: job.first_token_ms, what: "first token" });
  if (job.finished_ms) {
    const error = job.error ? `: ${job.error.replaceAll("_", " ")}` : "";
    found.push({ at: job.finished_ms, what: `${END[job.state] ?? job.state}${error}`, bad: job.state !== "completed" });
  }
  return found.sort((one, other) => one.at - other.at);
}

function assigned({ attempt, worker, policy, predicted_ms: predicted }) {
  const how = policy ? ` (${policy}${predicted ? `, first token predicted within ${predicted} ms` : ""})` : "";
  return `attempt ${attempt} assigned to ${worker || "a worker"}${how}`;
}

/** Where the time went, `{name, ms}`: until `nowMs` for a job that lives. */
export function stretches(job, nowMs) {
  const end = job.finished_ms || nowMs;
  const marks = [
    ["queued", job.ripe_ms || job.submitted_ms],
    ["inbox", job.assigned_ms],
    ["prefill", job.started_ms],
    ["decode", job.first_token_ms],
  ].filter(([, at]) => at);
  return marks
    .map(([name, at], index) => ({ name, ms: Math.max(0, (marks[index + 1]?.[1] ?? end) - at) }))
    .filter(({ ms }) => ms > 0);
}
