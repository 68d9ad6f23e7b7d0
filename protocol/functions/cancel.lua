-- KEYS job body result tokens deadlines clock events tenant due lane:high lane:medium lane:low
-- ARGV ref
-- → state before (terminal: nothing was done) | ''  when there is no such job
local function cancel(KEYS, ARGV)
  local P = prefix(KEYS)
  local job = load_job(P, ARGV[1])
  if not job then return '' end
  if ENDED[job.state] then return job.state end
  demand_all(job)
  end_early(job, 'cancelled', 'it was cancelled', now_ms())
  return job.state
end

redis.register_function{ function_name = 'tf1_cancel', callback = cancel, flags = { 'allow-oom' } }
