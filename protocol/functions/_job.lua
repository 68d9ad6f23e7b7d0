-- A job as a table, time and numbers.

local LOG_AFTER_SEAL_MS = 300000   -- then the result serves as one frame
local DEAD_KEEP_MS = 604800000     -- a job set aside can be replayed for a week
local TENANT_IDLE_S = 3600         -- an idle tenant's fair tags
local EVENTS_KEPT = 1000           -- hints: losing one costs latency only
local STRIKES_OUT = 3

local function now_ms()
  local t = redis.call('TIME')
  return math.floor(tonumber(t[1]) * 1000 + tonumber(t[2]) / 1000)
end

local function int(n) return string.format('%.0f', n) end
local function exact(n) return string.format('%.17g', n) end

local FIELDS = {
  'state', 'priority', 'attempt', 'worker', 'entry', 'member', 'score', 'cost', 'frames', 'log', 'reply', 'keep',
  'strikes', 'tries', 'hold', 'deadline', 'digest', 'nonces', 'submitted',
}
local NUMBERS = { attempt = 1, score = 1, cost = 1, frames = 1, keep = 1, strikes = 1, tries = 1, deadline = 1 }

local function load_job(P, ref)
  local values = redis.call('HMGET', job_key(P, ref), unpack(FIELDS))
  if not values[1] then return nil end
  local job = { P = P, ref = ref, key = job_key(P, ref), tenant = string.match(ref, '^([^:]+):') }
  for i, name in ipairs(FIELDS) do
    local value = values[i] or ''
    if NUMBERS[name] then value = tonumber(value) or 0 end
    job[name] = value
  end
  return job
end

local ENDED = { completed = true, failed = true, cancelled = true, expired = true }
local HELD = { assigned = true, running = true }

-- A worker whose lease is 0 is being reclaimed: it writes nothing from the first call on.
local function leased(P, worker)
  local lease = redis.call('ZSCORE', workers_key(P), worker)
  return lease and tonumber(lease) > 0
end

-- Fencing: state, attempt and worker id are compared before anything is written.
local function held_by(job, attempt, worker)
  return job and HELD[job.state] and job.attempt == tonumber(attempt) and job.worker == worker
    and leased(job.P, worker)
end

local function announce(P, kind, about)
  redis.call('XADD', events_key(P), 'MAXLEN', '~', EVENTS_KEPT, '*', 'k', kind, 'v', about)
end

-- Keys that the caller could not name are checked before the first write: a denial never leaves half a move.
local function denied(command, ...)
  if redis.acl_check_cmd and not redis.acl_check_cmd(command, ...) then
    return redis.error_reply('NOPERM no permission for a key of this move')
  end
end
