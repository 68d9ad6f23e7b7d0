-- KEYS job body result tokens inbox worker workers deadlines clock tenant events
-- ARGV ref attempt worker frames state outcome error_code first_token_after_ms
-- → ok | stale | gap last   (the log lacks frames: resend them, then finish)
local function finish(KEYS, ARGV)
  local P, ref, attempt, worker, frames, state, outcome, code, first = prefix(KEYS), unpack(ARGV, 1, 8)
  local job = load_job(P, ref)
  if not held_by(job, attempt, worker) then
    local mine = job and job.attempt == tonumber(attempt) and job.worker == worker
    if mine and (job.state == 'completed' or job.state == 'failed') then return { 'ok' } end
    return { 'stale' }
  end
  if job.frames < tonumber(frames) then return { 'gap', job.frames } end
  local refused = job.reply ~= '' and denied('XADD', done_key(P, job.reply), '*', 'j', '')
  if refused then return refused end
  finalise(job, state, outcome, code, now_ms())
  if tonumber(first) >= 0 and job.log == '' then
    local started = tonumber(redis.call('HGET', job.key, 'started') or 0) or 0
    redis.call('HSET', job.key, 'first', int(started + tonumber(first)))
  end
  return { 'ok' }
end

redis.register_function{ function_name = 'tf1_finish', callback = finish, flags = { 'allow-oom' } }
