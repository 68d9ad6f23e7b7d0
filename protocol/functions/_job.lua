-- A job as a table, time and numbers. Numbers that are only passed on stay strings: formatting costs more than reading.

local LOG_AFTER_SEAL_MS = 300000   -- then the result serves as one frame
local DEAD_KEEP_MS = 604800000     -- a job set aside can be replayed for a week
local TENANT_IDLE_S = 3600         -- an idle tenant's fair tags
local STRIKES_OUT = 3
local HISTORY_KEPT = 16             -- attempts that were given back, in a job's history

local function now_ms()
  local t = redis.call('TIME')
  return math.floor(tonumber(t[1]) * 1000 + tonumber(t[2]) / 1000)
end

local function int(n) return string.format('%d', n) end
local function exact(n) return string.format('%.17g', n) end
local function number(text) return tonumber(text or 0) or 0 end
local function tenant_of(ref) return string.match(ref, '^([^:]+):') end

-- nil also when something that is no job stands under the key: what was written by hand must not block a lane. But a key
-- that may not be read is no missing job.
local function load_job(P, ref)
  local key = job_key(P, ref)
  local v = redis.pcall('HMGET', key, 'state', 'priority', 'attempt', 'worker', 'entry', 'member', 'score', 'frames',
    'log', 'reply', 'keep', 'strikes', 'tries', 'deadline', 'started')
  if v.err and not string.find(tostring(v.err), 'WRONGTYPE', 1, true) then error(v) end
  if v.err or not (v[1] and v[2] and v[11] and v[14]) then return nil end
  return {
    P = P, ref = ref, key = key, state = v[1], priority = v[2], attempt = v[3] or '0', worker = v[4] or '', entry = v[5],
    member = v[6], score = v[7], frames = number(v[8]), log = v[9], reply = v[10] or '', keep = v[11],
    strikes = number(v[12]), tries = number(v[13]), deadline = number(v[14]), started = v[15],
  }
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
  return job and HELD[job.state] and job.attempt == attempt and job.worker == worker and leased(job.P, worker)
end

-- A hint for the dispatcher. One is enough: `wake` clears it before the lanes are read.
local function announce(P, kind, about)
  if redis.call('XLEN', events_key(P)) == 0 then
    redis.call('XADD', events_key(P), '*', 'k', kind, 'v', about)
  end
end

-- What the caller could not name is checked before the first write, each key with a command that the move gives it: a
-- denial never leaves half a move.
local function demand(command, ...)
  if redis.acl_check_cmd and not redis.acl_check_cmd(command, ...) then
    error({ err = 'NOPERM no permission for a key of this move' })
  end
end

-- Whoever may write under the bare prefix may write to the whole shard: one look instead of one for each key.
local function trusted(P) return not redis.acl_check_cmd or redis.acl_check_cmd('DEL', P) end

local function demand_notice(job)
  if job.reply ~= '' then demand('XADD', done_key(job.P, job.ref, job.reply)) end
end

-- Every key of its own that a job's move may touch, and its channel.
local function demand_all(job)
  local P, ref = job.P, job.ref
  demand('PUBLISH', tokens_key(P, ref), '')
  if trusted(P) then return end
  demand('HSET', job.key)
  demand('DEL', body_key(P, ref))
  demand('SET', result_key(P, ref))
  demand('XADD', tokens_key(P, ref))
  demand('HINCRBY', tenant_key(P, tenant_of(ref)))
  demand_notice(job)
  if HELD[job.state] then
    demand('XDEL', inbox_key(P, job.worker))
    demand('HINCRBY', worker_key(P, job.worker))
  end
end
