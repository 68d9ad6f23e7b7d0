-- KEYS job body workers
-- ARGV ref attempt worker
-- → ok spec body priority tries strikes deadline_left_ms | stale
-- Marks the attempt as started before an engine sees the body: only such an attempt can earn a strike.
local function start(KEYS, ARGV)
  local P = prefix(KEYS)
  local job = load_job(P, ARGV[1])
  if not held_by(job, ARGV[2], ARGV[3]) then return { 'stale' } end
  local now = now_ms()
  if job.state == 'assigned' then
    redis.call('HSET', job.key, 'state', 'running', 'started', int(now))
  end
  local spec, body = redis.call('HGET', job.key, 'spec'), redis.call('GET', body_key(P, job.ref))
  return { 'ok', spec or '', body or '', job.priority, job.tries, job.strikes, int(job.deadline - now) }
end

redis.register_function{ function_name = 'tf1_start', callback = start, flags = { 'allow-oom' } }
