-- KEYS job body result tokens inbox worker workers deadlines clock tenant events
-- ARGV ref attempt worker frames state outcome error_code first_token_after_ms used_tokens   (-1: not counted)
-- → ok first finished | stale | gap last   (the log lacks frames: resend them, then finish)
local function ended_at(job)
  local f = redis.call('HMGET', job.key, 'first', 'finished')
  return { 'ok', int(number(f[1])), int(number(f[2])) }
end

local function finish(KEYS, ARGV)
  local P, ref, attempt, worker, frames, state, outcome, code, first = prefix(KEYS), unpack(ARGV, 1, 8)
  if not ENDED[state] then return redis.error_reply('ERR no state that a job ends in') end
  local job = load_job(P, ref)
  if not held_by(job, attempt, worker) then
    local mine = job and job.attempt == attempt and job.worker == worker
    if mine and (job.state == 'completed' or job.state == 'failed') then return ended_at(job) end
    return { 'stale' }
  end
  if job.frames < tonumber(frames) then return { 'gap', job.frames } end
  demand_for_end(job)
  local at = ''
  -- What an attempt left of an answer that nobody reads along is in the log too, and came there when it ended.
  if tonumber(first) >= 0 and (not job.log or tonumber(frames) == 0) then at = int(number(job.started) + tonumber(first)) end
  local used = tonumber(ARGV[9] or -1)
  finalise(job, state, outcome, code, now_ms(), at, used >= 0 and used or nil)
  return ended_at(job)
end

redis.register_function{ function_name = 'tf1_finish', callback = finish, flags = { 'allow-oom' } }
