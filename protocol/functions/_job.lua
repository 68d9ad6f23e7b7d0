-- A job as a table, time and numbers. Numbers that are only passed on stay strings: formatting costs more than reading.

local LOG_AFTER_SEAL_MS = 300000   -- then the result serves as one frame
local DEAD_KEEP_MS = 604800000     -- a job set aside can be replayed for a week
local TENANT_IDLE_S = 3600         -- an idle tenant's fair tags
local TENANT_IDLE_MOST_S = 315360000  -- ten years: whatever it owes
local STRIKES_OUT = 3
local HISTORY_KEPT = 16             -- attempts that were given back, in a job's history

local function now_ms()
  local t = redis.call('TIME')
  return math.floor(tonumber(t[1]) * 1000 + tonumber(t[2]) / 1000)
end

local function int(n) return string.format('%d', n) end
local function exact(n) return string.format('%.17g', n) end
local MOST = 2 ^ 53                -- beyond it nothing of ours counts: it is infinite, or no number, and counts as 0
local function number(text)
  local n = tonumber(text or 0) or 0
  return n > -MOST and n < MOST and n or 0
end
local function tenant_of(ref) return string.match(ref, '^([^:]+):') or '' end

local ENDED = { completed = true, failed = true, cancelled = true, expired = true }
local HELD = { assigned = true, running = true }
local WAITING = { queued = true, delayed = true }
local PRIORITIES = { high = true, medium = true, low = true }

-- What was written by hand must block nobody. These are the only errors that come of it; others are raised, as when a key
-- may not be read.
local function by_hand(reply)
  if type(reply) ~= 'table' or not reply.err then return false end
  local text = tostring(reply.err)
  for _, sign in ipairs({ 'WRONGTYPE', 'equal or smaller', 'not an integer', 'would overflow' }) do
    if string.find(text, sign, 1, true) then return true end
  end
  error(reply)
end

-- A read; nil where another type stands under the key.
local function try(...)
  local reply = redis.pcall(...)
  if by_hand(reply) then return nil end
  return reply
end

-- What stands under one of our names, and is not ours, gives way; for a week it can be looked at under another name.
-- Attempt numbers must never come again: they go on from the time, which no count of them has reached.
local function set_apart(key)
  redis.call('RENAME', key, key .. ':apart')
  redis.call('PEXPIRE', key .. ':apart', DEAD_KEEP_MS)
  if string.sub(key, -6) == ':clock' then redis.call('HSET', key, 'attempt', int(now_ms())) end
end

-- A write to one of our keys, whatever stands under it.
local function write(command, key, ...)
  local reply = redis.pcall(command, key, ...)
  if not by_hand(reply) then return reply end
  if command == 'HINCRBY' and redis.call('TYPE', key).ok == 'hash' then
    local field = ...
    redis.call('HSET', key, field, field == 'attempt' and int(now_ms()) or 0)
  else
    set_apart(key)
  end
  return redis.call(command, key, ...)
end

local function whole(text) return text and #text <= 15 and string.find(text, '^%d+$') and true end

-- Whether a job's fields, in the order of `load_job`, are such as we write them: no move may fail halfway on one.
local function sound(v)
  local state, worker, entry, member, score = v[1], v[4], v[5], v[6], tonumber(v[7] or '')
  if not (ENDED[state] or HELD[state] or WAITING[state]) or not PRIORITIES[v[2]] then return false end
  if not (whole(v[3] or '0') and whole(v[8] or '0') and whole(v[11]) and tonumber(v[11]) > 0) then return false end
  if not (whole(v[12] or '0') and whole(v[13] or '0') and whole(v[14])) then return false end
  if HELD[state] and not (worker and worker ~= '' and string.find(entry or '', '^%d+%-%d+$')) then return false end
  return not (state == 'queued' or HELD[state]) or (member and score and score == score)
end

-- nil also when something that is no job stands under the key.
local function load_job(P, ref)
  local key = job_key(P, ref)
  local v = try('HMGET', key, 'state', 'priority', 'attempt', 'worker', 'entry', 'member', 'score', 'frames',
    'log', 'reply', 'keep', 'strikes', 'tries', 'deadline', 'started', 'bucket')
  if not v or not sound(v) then return nil end
  return {
    P = P, ref = ref, key = key, state = v[1], priority = v[2], attempt = v[3] or '0', worker = v[4] or '', entry = v[5],
    member = v[6], score = v[7], frames = number(v[8]), log = v[9], reply = v[10] or '', keep = v[11],
    strikes = number(v[12]), tries = number(v[13]), deadline = number(v[14]), started = v[15],
    bucket = v[16],
  }
end

-- Keys of what is no job: nobody ends it, so it ends by itself. A missing job has none.
local function put_away(P, ref)
  for _, key in ipairs({ job_key(P, ref), body_key(P, ref), result_key(P, ref), tokens_key(P, ref) }) do
    redis.call('PEXPIRE', key, DEAD_KEEP_MS, 'NX')
  end
end

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
  if try('XLEN', events_key(P)) == 0 then
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

-- What whoever ends the job could not name.
local function demand_for_end(job)
  if job.reply ~= '' then demand('XADD', done_key(job.P, job.ref, job.reply)) end
  local id = job.bucket and string.match(job.bucket, '^[a-z0-9_-]+')
  if id then demand('HSET', bucket_key(job.P, job.ref, id)) end
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
  demand_for_end(job)
  if HELD[job.state] then
    demand('XDEL', inbox_key(P, job.worker))
    demand('HINCRBY', worker_key(P, job.worker))
  end
end
