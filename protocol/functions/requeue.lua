-- KEYS job body result tokens inbox worker workers deadlines clock tenant events lane:high lane:medium lane:low due dead
-- ARGV ref attempt worker fault delay_ms why     fault: none | try | strike
-- → ok | dead | stale
local function requeue(KEYS, ARGV)
  local P, ref, attempt, worker, fault, delay, why = prefix(KEYS), unpack(ARGV, 1, 6)
  local job = load_job(P, ref)
  if not held_by(job, attempt, worker) then return { 'stale' } end
  demand_for_end(job)
  return { give_back(job, fault, why, tonumber(delay), now_ms()) }
end

redis.register_function{ function_name = 'tf1_requeue', callback = requeue, flags = { 'allow-oom' } }
