-- KEYS job tokens workers
-- ARGV ref attempt worker seq payload after first_token_after_ms tokens
--   first_token_after_ms: of what is logged late, as when it is given back; -1 for now
--   after: with an attempt's first frame, the one of an older attempt that its text goes on from; '' for none
-- → the last sequence number in the log (below seq: resend what is missing) | -1 when the attempt is not yours
--   | -2 when the log does not end with `after`
local function emit(KEYS, ARGV)
  local P, ref, attempt, worker, seq, payload, after, first, tokens = prefix(KEYS), unpack(ARGV, 1, 8)
  local job = try('HMGET', job_key(P, ref), 'state', 'attempt', 'worker', 'frames', 'started', 'bucket') or {}
  if job[1] ~= 'running' or job[2] ~= attempt or job[3] ~= worker or not leased(P, worker) then return -1 end
  local last, n = number(job[4]), tonumber(seq)
  if after ~= '' and last == 0 then
    local tail = (try('XREVRANGE', tokens_key(P, ref), '+', '-', 'COUNT', 1) or {})[1]
    if not tail or tail[1] ~= after then return -2 end
    last = tonumber(string.match(after, '%-(%d+)$'))
  end
  if n ~= last + 1 then return last end
  local id = attempt .. '-' .. seq
  redis.call('PUBLISH', tokens_key(P, ref), id .. ' ' .. payload)
  write('XADD', tokens_key(P, ref), id, 'f', payload)
  if n == 1 then
    local at = tonumber(first) >= 0 and number(job[5]) + tonumber(first) or now_ms()
    redis.call('HSET', job_key(P, ref), 'frames', seq, 'log', 1, 'first', int(at))
  else
    redis.call('HSET', job_key(P, ref), 'frames', seq)
  end
  -- What it has used is known before its engine tells, should it end early.
  if job[6] then
    local before = n > 1 and number(redis.call('HGET', job_key(P, ref), 'said')) or 0
    redis.call('HSET', job_key(P, ref), 'said', int(before + number(tokens)))
  end
  return n
end

redis.register_function{ function_name = 'tf1_emit', callback = emit, flags = { 'allow-oom' } }
