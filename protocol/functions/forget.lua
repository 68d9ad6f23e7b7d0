-- KEYS job body result tokens [done]
-- ARGV ref attempt [done entry id]
-- → 1 | 0 when the job is another run by now, or lives
-- A job that was set aside stays for replay; only the notice goes.
local function forget(KEYS, ARGV)
  local P, ref = prefix(KEYS), ARGV[1]
  if KEYS[5] then redis.call('XDEL', KEYS[5], ARGV[3]) end
  local job = redis.call('HMGET', job_key(P, ref), 'state', 'attempt', 'dead')
  if not job[1] then return 1 end
  if not ENDED[job[1]] or (job[2] or '0') ~= ARGV[2] then return 0 end
  if not job[3] then redis.call('DEL', KEYS[1], KEYS[2], KEYS[3], KEYS[4]) end
  return 1
end

redis.register_function{ function_name = 'tf1_forget', callback = forget, flags = { 'allow-oom' } }
