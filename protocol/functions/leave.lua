-- KEYS workers worker inbox clock deadlines events due lane:high lane:medium lane:low
-- ARGV worker
-- → 1 when the worker is gone, 0 when there is more to hand back: call again
local ENTRIES_A_CALL = 100

local function leave(KEYS, ARGV)
  local P, worker = prefix(KEYS), ARGV[1]
  if not redis.call('ZSCORE', workers_key(P), worker) then return 1 end
  return empty_inbox(P, worker, 'leaving', ENTRIES_A_CALL, now_ms()) and 1 or 0
end

redis.register_function{ function_name = 'tf1_leave', callback = leave, flags = { 'allow-oom' } }
