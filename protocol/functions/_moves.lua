-- The helpers that all moves share: place, unplace, give back, finalise.

-- Limits count lane plus `due`, for the shard and for the tenant.
local function count_waiting(job, delta)
  local field, tenant = 'q:' .. job.priority, tenant_key(job.P, job.tenant)
  redis.call('HINCRBY', clock_key(job.P), field, delta)
  local left = redis.call('HINCRBY', tenant, field, delta)
  if delta > 0 and left == 1 then
    redis.call('PERSIST', tenant)
  elseif left == 0 then
    for _, n in ipairs(redis.call('HMGET', tenant, 'q:high', 'q:medium', 'q:low')) do
      if (tonumber(n or 0) or 0) > 0 then return end
    end
    redis.call('EXPIRE', tenant, TENANT_IDLE_S)
  end
end

-- Start-time fair queueing: a job starts at max(the lane's time, its tenant's tag); the tag advances by cost / weight.
local function fair_start(job)
  local lane = redis.call('HMGET', clock_key(job.P), 'vt:' .. job.priority, 'weight:' .. job.tenant)
  local tenant, field = tenant_key(job.P, job.tenant), 'tag:' .. job.priority
  local start = math.max(tonumber(lane[1] or 0) or 0, tonumber(redis.call('HGET', tenant, field) or 0) or 0)
  redis.call('HSET', tenant, field, exact(start + job.cost / (tonumber(lane[2] or 1) or 1)))
  return start
end

-- Members begin with a zero-padded sequence number, so that equal scores keep the order of arrival.
local function place_anew(job)
  job.score = fair_start(job)
  local seq = redis.call('HINCRBY', clock_key(job.P), 'seq', 1)
  job.member = string.format('%016.0f', seq) .. ':' .. job.ref
  redis.call('ZADD', lane_key(job.P, job.priority), exact(job.score), job.member)
  redis.call('HSET', job.key, 'state', 'queued', 'member', job.member, 'score', exact(job.score), 'hold', '')
  announce(job.P, 'submitted', job.priority)
end

local function place_back(job)
  redis.call('ZADD', lane_key(job.P, job.priority), exact(job.score), job.member)
  redis.call('HSET', job.key, 'state', 'queued', 'hold', '')
  announce(job.P, 'submitted', job.priority)
end

local function place_in_due(job, at, hold)
  redis.call('ZADD', due_key(job.P), int(at), job.ref)
  redis.call('HSET', job.key, 'state', 'delayed', 'hold', hold)
end

local function release(job)
  local worker = worker_key(job.P, job.worker)
  redis.call('XDEL', inbox_key(job.P, job.worker), job.entry)
  redis.call('HINCRBY', worker, 'held', -1)
  if job.strikes == STRIKES_OUT - 1 then redis.call('HSET', worker, 'solo', 0) end
end

-- Takes the job out of the one place where it is.
local function unplace(job)
  if job.state == 'queued' then
    redis.call('ZREM', lane_key(job.P, job.priority), job.member)
    count_waiting(job, -1)
  elseif job.state == 'delayed' then
    redis.call('ZREM', due_key(job.P), job.ref)
    count_waiting(job, -1)
  else
    release(job)
  end
end

-- Ends a job: stores the outcome, seals the log, publishes the seal, notifies, empties the other keys.
local function finalise(job, state, outcome, code, now)
  local P, seal = job.P, '{"seal":"' .. state .. '"}'
  local id = int(job.attempt) .. '-' .. int(job.frames + 1)
  redis.call('PUBLISH', tokens_key(P, job.ref), id .. ' ' .. seal)  -- first: a channel that is denied stops the move whole
  unplace(job)
  redis.call('ZREM', deadlines_key(P), job.ref)
  redis.call('SET', result_key(P, job.ref), outcome, 'PX', int(job.keep))
  redis.call('HSET', job.key, 'state', state, 'error', code, 'finished', int(now))
  redis.call('PEXPIRE', job.key, int(job.keep))
  redis.call('DEL', body_key(P, job.ref))
  if job.log ~= '' then
    redis.call('XADD', tokens_key(P, job.ref), id, 'f', seal)
    redis.call('PEXPIRE', tokens_key(P, job.ref), LOG_AFTER_SEAL_MS)
  end
  if job.reply ~= '' then
    redis.call('XADD', done_key(P, job.reply), '*', 'j', job.ref, 'a', int(job.attempt), 's', state)
    redis.call('PEXPIRE', done_key(P, job.reply), int(job.keep))
  end
  announce(P, 'finished', job.worker)
end

-- An outcome that no engine gave, as in protocol/messages.py.
local function failure(job, state, code, message)
  return '{"state":"' .. state .. '","attempt":' .. int(job.attempt)
    .. ',"error":{"code":"' .. code .. '","message":"' .. message .. '"}}'
end

-- Ends a held job over its worker's head; the worker is told, and need not answer.
local function end_early(job, state, message, now)
  local held = HELD[job.state]
  finalise(job, state, failure(job, state, state, message), state, now)
  if held then
    redis.call('XADD', inbox_key(job.P, job.worker), '*', 'k', 'abort', 'j', job.ref, 'a', int(job.attempt))
  end
end

-- A job struck out is set aside with its body, so that it can be replayed; all its keys end at one age.
local function set_aside(job, now)
  local body = redis.call('GET', body_key(job.P, job.ref))
  job.keep = DEAD_KEEP_MS
  local outcome = failure(job, 'failed', 'struck_out', 'its engine or worker died three times while it ran')
  finalise(job, 'failed', outcome, 'struck_out', now)
  redis.call('SET', body_key(job.P, job.ref), body or '', 'PX', DEAD_KEEP_MS)
  if job.log ~= '' then redis.call('PEXPIRE', tokens_key(job.P, job.ref), DEAD_KEEP_MS) end
  redis.call('HSET', job.key, 'dead', 1)
  redis.call('XADD', dead_key(job.P), 'MINID', '~', int(now - DEAD_KEEP_MS), '*', 'j', job.ref, 'a', int(job.attempt))
end

-- Takes a held job from its worker and puts it back with its place in the lane, or aside.
-- fault: 'none', 'try' (the engine failed it), 'strike' (its engine or worker died; counts only once it had started).
local function give_back(job, fault, delay, now)
  local struck = fault == 'strike' and job.state == 'running'
  if struck and job.strikes + 1 >= STRIKES_OUT then
    redis.call('HSET', job.key, 'strikes', job.strikes + 1)
    set_aside(job, now)
    return 'dead'
  end
  release(job)
  if struck then job.strikes = job.strikes + 1 end
  if fault == 'try' then job.tries = job.tries + 1 end
  redis.call('HSET', job.key, 'strikes', job.strikes, 'tries', job.tries, 'worker', '')
  count_waiting(job, 1)
  if delay > 0 then place_in_due(job, now + delay, 1) else place_back(job) end
  return 'ok'
end

-- Empties at most `budget` entries of a worker's inbox; true once nothing is left and the worker is gone.
local function empty_inbox(P, worker, fault, budget, now)
  local inbox = inbox_key(P, worker)
  redis.call('ZADD', workers_key(P), 0, worker)
  redis.call('HSET', worker_key(P, worker), 'state', 'lost')
  local entries = redis.call('XRANGE', inbox, '-', '+', 'COUNT', budget)
  for _, entry in ipairs(entries) do
    local id, f = entry[1], entry[2]
    local job = f[2] == 'assign' and load_job(P, f[4])
    if job and HELD[job.state] and job.worker == worker and job.entry == id then
      give_back(job, fault, 0, now)
    else
      redis.call('XDEL', inbox, id)
    end
  end
  if #entries == budget then return false end
  redis.call('DEL', inbox, worker_key(P, worker))
  redis.call('ZREM', workers_key(P), worker)
  return true
end
