-- The helpers that all moves share: number, place, unplace, give back, finalise.

-- What this server wrote last, by shard, in its memory. Where the store holds something else, the server was started
-- anew, or another one led meanwhile: the last seconds of what was written may be lost.
-- `ticked` is the mark of the last tick; `tick`, its time, says how long ago that was.
local numbered_here, ticked_here = {}, {}
-- After such a loss numbers go on from the time, at more of them a ms than any shard starts: so two losses in a row, each
-- back to the same count, go on from two places. Until the year 2300 they stay below 2^53.
local NUMBERED_SINCE_MS, NUMBERS_A_MS = 1700000000000, 1000
local LOST_AT_MOST = 1000000        -- attempts; where the clock went back

-- Numbers for so many attempts; the last one of them. No number is ever given twice: a follower would take the frames of
-- two attempts for those of one, and a worker a new job for one that it had.
local function number_attempts(P, count)
  local stored = number(try('HGET', clock_key(P), 'attempt'))
  local skipped = 0
  if stored > 0 and stored ~= numbered_here[P] then
    skipped = math.max(LOST_AT_MOST, (now_ms() - NUMBERED_SINCE_MS) * NUMBERS_A_MS - stored)
  end
  local last = write('HINCRBY', clock_key(P), 'attempt', int(skipped + count))
  numbered_here[P] = last
  return last
end

-- Counts what happened, for whoever watches: ends by their state, strikes, tries, leases that were lost, jobs that were
-- taken back. A count that a hand has written, and that can't grow, begins anew: no move breaks off halfway for it.
local function tally(P, what)
  local reply = redis.pcall('HINCRBY', clock_key(P), 'n:' .. what, 1)
  if type(reply) == 'table' and reply.err then redis.pcall('HSET', clock_key(P), 'n:' .. what, 1) end
end

-- How long an idle tenant's hash is kept: its debt of tokens is forgotten no sooner than it is paid.
local function tenant_idle_s(P, key)
  local quota = number(try('HGET', clock_key(P), 'quota:tokens'))
  if quota <= 0 then return TENANT_IDLE_S end
  local spent = number(redis.call('HMGET', key, 'spent')[1])
  return math.min(math.max(TENANT_IDLE_S, math.ceil(spent * 60 / quota)), TENANT_IDLE_MOST_S)
end

-- Limits count lane plus `due`, for the shard and for the tenant.
local function count_waiting(P, priority, tenant, delta)
  local key, field = tenant_key(P, tenant), 'q:' .. priority
  write('HINCRBY', clock_key(P), field, delta)
  local left = write('HINCRBY', key, field, delta)
  if delta > 0 then
    if left == delta then redis.call('PERSIST', key) end
  elseif left == 0 then
    for _, n in ipairs(redis.call('HMGET', key, 'q:high', 'q:medium', 'q:low')) do
      if number(n) > 0 then return end
    end
    redis.call('EXPIRE', key, int(tenant_idle_s(P, key)))
  end
end

-- Start-time fair queueing: a job starts at max(the lane's time, its tenant's tag); the tag advances by cost / weight.
-- Members begin with a zero-padded sequence number, so that equal scores keep the order of arrival.
-- `lane` holds the clock's vt, weight and seq, `tag` the tenant's; answers the fields to write back.
local function fair_place(ref, cost, lane, tag)
  local start, seq = math.max(number(lane.vt), number(tag)), number(lane.seq) + 1
  return {
    score = exact(start), tag = exact(start + number(cost) / (tonumber(lane.weight or 1) or 1)),
    seq = int(seq), member = string.format('%016d', seq) .. ':' .. ref,
  }
end

local function place_anew(job, cost)
  local P, tenant, p = job.P, tenant_of(job.ref), job.priority
  local c = redis.call('HMGET', clock_key(P), 'vt:' .. p, 'weight:' .. tenant, 'seq')
  local tag = try('HGET', tenant_key(P, tenant), 'tag:' .. p)
  local place = fair_place(job.ref, cost, { vt = c[1], weight = c[2], seq = c[3] }, tag)
  redis.call('HSET', clock_key(P), 'seq', place.seq)
  write('HSET', tenant_key(P, tenant), 'tag:' .. p, place.tag)
  redis.call('HSET', job.key, 'state', 'queued', 'member', place.member, 'score', place.score)
  write('ZADD', lane_key(P, p), place.score, place.member)
  announce(P, 'submitted', job.ref)
end

local function place_back(job)
  write('ZADD', lane_key(job.P, job.priority), job.score, job.member)
  redis.call('HSET', job.key, 'state', 'queued', 'hold', '')
  announce(job.P, 'submitted', job.ref)
end

-- `hold`: the job keeps its place in the lane for when it comes back; `late` may be called back before.
local function place_in_due(job, at, hold)
  write('ZADD', due_key(job.P), int(at), job.ref)
  redis.call('HSET', job.key, 'state', 'delayed', 'hold', hold or 1)
end

local function keeps_its_place(hold) return hold == '1' or hold == 'late' end

local function release(job)
  local worker = worker_key(job.P, job.worker)
  try('XDEL', inbox_key(job.P, job.worker), job.entry)
  if not try('HINCRBY', worker, 'held', -1) then return end
  if job.strikes == STRIKES_OUT - 1 then redis.call('HSET', worker, 'solo', 0) end
end

-- Takes the job out of the one place where it is.
local function unplace(job)
  if HELD[job.state] then return release(job) end
  if job.state == 'queued' then
    try('ZREM', lane_key(job.P, job.priority), job.member)
  else
    try('ZREM', due_key(job.P), job.ref)
  end
  count_waiting(job.P, job.priority, tenant_of(job.ref), -1)
end

-- Ends a job: publishes the seal, stores the outcome, seals the log, notifies, empties the other keys. Publishing comes
-- first, since a channel that is denied must stop the move before its first write.
-- `first` is the time of the first token, '' when the log has it or there was none; `used` the tokens that its engine
-- counted, nil when none did.
local function finalise(job, state, outcome, code, now, first, used)
  local P, tokens, seal = job.P, tokens_key(job.P, job.ref), '{"seal":"' .. state .. '"}'
  local id = job.attempt .. '-' .. int(job.frames + 1)
  redis.call('PUBLISH', tokens, id .. ' ' .. seal)
  unplace(job)
  tally(P, state)
  if job.bucket then settle(job, used, now) end
  try('ZREM', deadlines_key(P), job.ref)
  redis.call('SET', result_key(P, job.ref), outcome, 'PX', job.keep)
  local fields = { 'state', state, 'finished', int(now) }
  if code ~= '' then fields[5], fields[6] = 'error', code end
  if first ~= '' then fields[#fields + 1], fields[#fields + 2] = 'first', first end
  redis.call('HSET', job.key, unpack(fields))
  redis.call('PEXPIRE', job.key, job.keep)
  redis.call('DEL', body_key(P, job.ref))
  if job.log then
    write('XADD', tokens, id, 'f', seal)
    redis.call('PEXPIRE', tokens, LOG_AFTER_SEAL_MS)
  end
  if job.reply ~= '' then
    local done = done_key(P, job.ref, job.reply)
    write('XADD', done, '*', 'j', job.ref, 'a', job.attempt, 's', state)
    redis.call('PEXPIRE', done, job.keep)
  end
  announce(P, 'finished', job.worker)
end

-- An outcome that no engine gave, as in protocol/messages.py; `wait` in ms, of a refusal.
local function failure(job, state, code, message, wait)
  return '{"state":"' .. state .. '","attempt":' .. job.attempt
    .. ',"error":{"code":"' .. code .. '","message":"' .. message .. '"' .. (wait and ',"wait_ms":' .. int(wait) or '') .. '}}'
end

-- Ends a held job over its worker's head; the worker is told, and need not answer.
local function end_early(job, state, message, now)
  local held = HELD[job.state]
  finalise(job, state, failure(job, state, state, message), state, now, '')
  if held then
    try('XADD', inbox_key(job.P, job.worker), '*', 'k', 'abort', 'j', job.ref, 'a', job.attempt)
  end
end

-- A job given up is set aside with its body, so that it can be replayed; all its keys end at one age.
local function set_aside(job, code, message, now)
  local body = try('GET', body_key(job.P, job.ref))
  job.keep = DEAD_KEEP_MS
  finalise(job, 'failed', failure(job, 'failed', code, message), code, now, '')
  redis.call('SET', body_key(job.P, job.ref), body or '', 'PX', DEAD_KEEP_MS)
  if job.log then redis.call('PEXPIRE', tokens_key(job.P, job.ref), DEAD_KEEP_MS) end
  local entry = write('XADD', dead_key(job.P), 'MINID', '~', int(now - DEAD_KEEP_MS), '*', 'j', job.ref,
    'a', job.attempt)
  redis.call('HSET', job.key, 'dead', entry)
  tally(job.P, 'dead')
end

-- Appends the attempt to the job's history, one JSON object a line. Of those that one worker gave back untouched in a
-- row, as one does whose engine has just died, the last one stands for all: they must not push out what went wrong.
local function remember(job, fault, why, now)
  local old = redis.call('HGET', job.key, 'history') or ''
  local kept = {}
  for line in string.gmatch(old, '[^\n]+') do kept[#kept + 1] = line end
  local worker = try('HGET', worker_key(job.P, job.worker), 'label') or ''
  local readable, last = pcall(cjson.decode, kept[#kept] or '{}')
  if not readable or type(last) ~= 'table' then last = {} end
  local again = fault == 'none' and last.fault == fault and last.why == why and last.worker == worker
  kept[#kept + (again and 0 or 1)] = cjson.encode({
    attempt = tonumber(job.attempt), fault = fault, why = why, at_ms = now, worker = worker,
  })
  local text = table.concat(kept, '\n', math.max(1, #kept - HISTORY_KEPT + 1))
  redis.call('HSET', job.key, 'history', text)
end

-- Takes a held job from its worker and puts it back with its place in the lane, or aside.
-- fault: 'none', 'try' (the engine failed it), 'strike' (its engine or worker died; counts only once it had started).
local function give_back(job, fault, why, delay, now)
  local struck = fault == 'strike' and job.state == 'running'
  if fault == 'strike' and not struck then fault = 'none' end
  if struck and job.strikes + 1 >= STRIKES_OUT then
    set_aside(job, 'struck_out', 'its engine or worker died three times while it ran', now)
    redis.call('HSET', job.key, 'strikes', job.strikes + 1)
    remember(job, fault, why, now)
    tally(job.P, fault)
    return 'dead'
  end
  release(job)
  remember(job, fault, why, now)
  if struck then job.strikes = job.strikes + 1 end
  if fault == 'try' then job.tries = job.tries + 1 end
  if fault ~= 'none' then tally(job.P, fault) end
  redis.call('HSET', job.key, 'strikes', job.strikes, 'tries', job.tries, 'worker', '', 'back', int(now))
  count_waiting(job.P, job.priority, tenant_of(job.ref), 1)
  if delay > 0 then place_in_due(job, now + delay) else place_back(job) end
  return 'ok'
end

-- The job that an inbox entry stands for, while the worker holds it by that entry.
local function stands_for(P, worker, entry)
  local f = entry[2]
  local job = f[2] == 'assign' and f[4] and load_job(P, f[4])
  if job and HELD[job.state] and job.worker == worker and job.entry == entry[1] then return job end
end

-- Empties at most `budget` entries of a worker's inbox; true once nothing is left and the worker is gone. A worker that
-- leaves is not to blame, also when the dispatcher moves the rest of its jobs.
local function empty_inbox(P, worker, state, budget, now)
  local inbox, jobs = inbox_key(P, worker), {}
  local entries = try('XRANGE', inbox, '-', '+', 'COUNT', budget) or {}
  demand('DEL', inbox, worker_key(P, worker), prefixes_key(P, worker))
  for i, entry in ipairs(entries) do
    jobs[i] = stands_for(P, worker, entry)
    if jobs[i] then demand_all(jobs[i]) end
  end
  redis.call('ZADD', workers_key(P), 0, worker)
  local f = try('HMGET', worker_key(P, worker), 'state', 'at', 'unheard') or {}
  if f[1] == 'leaving' then state = 'leaving' end
  write('HSET', worker_key(P, worker), 'state', state)
  local fault, why = 'none', 'its worker left'
  if state == 'lost' then fault, why = 'strike', 'its worker was silent until its lease ended' end
  -- It may have left, and Redis have lost that.
  if state == 'lost' and f[2] and f[2] == f[3] then fault, why = 'none', 'its worker was not heard after a gap' end
  for i, entry in ipairs(entries) do
    local job = jobs[i]
    if not job then
      try('XDEL', inbox, entry[1])
    elseif give_back(job, fault, why, 0, now) == 'ok' and state == 'lost' and job.state == 'running' then
      -- Its worker tells nobody how it went; whoever runs the job next does.
      redis.call('HSET', job.key, 'lost', table.concat({ job.attempt, int(number(job.started)), int(now) }, ' '))
    end
  end
  if #entries == budget then return false end
  if state == 'lost' then tally(P, 'lost') end
  redis.call('DEL', inbox, worker_key(P, worker), prefixes_key(P, worker))
  redis.call('ZREM', workers_key(P), worker)
  return true
end
