-- KEYS leader clock workers due deadlines events lane:high lane:medium lane:low dead
-- ARGV token lead_ms lease_ms gap_ms quiet_ms limit:high limit:medium limit:low quota:jobs quota:tokens recall   (0: none)
--   recall: so many of those that were put off because they were late come back before their time
-- → lead ripened expired reclaimed next_due_ms recalled
--   (counts ≤ 100; next_due_ms: until the next one ripens, -1 when none waits)
local JOBS_A_CALL = 100
local LONGEST_WAIT_MS = 3600000
local LONGEST_RETRY_MS = 60000      -- no engine's retry is put off for longer
local RETRIES_HASTENED = 1000
local LOOKED_THROUGH = 300          -- for those to recall: others may stand between them
local ANSWER_MS = 1000              -- who lives is heard again so soon after a restart
local QUIET_A_CALL = 8

local TYPES = {
  leader = 'string', clock = 'hash', workers = 'zset', due = 'zset', deadlines = 'zset', events = 'stream',
  dead = 'stream', ['lane:high'] = 'zset', ['lane:medium'] = 'zset', ['lane:low'] = 'zset',
}

-- One key of another type would stop the whole shard.
local function set_strays_apart(P)
  for name, kind in pairs(TYPES) do
    local found = redis.call('TYPE', P .. name).ok
    if found ~= 'none' and found ~= kind then set_apart(P .. name) end
  end
end

-- No lead lasts longer than a gap. One that seems to was taken before the clock went back; its holder may be dead. One
-- without an end was written by hand.
local function take_lead(P, token, lead_ms, gap_ms)
  local leader = redis.call('GET', leader_key(P))
  if leader and leader ~= token then
    local left = redis.call('PTTL', leader_key(P))
    if left < 0 or left > gap_ms then redis.call('PEXPIRE', leader_key(P), gap_ms) end
    redis.call('HSET', clock_key(P), 'standby', int(now_ms()))
    return false
  end
  redis.call('SET', leader_key(P), token, 'PX', lead_ms)
  return true
end

-- What keeps its place in the lane waits for a moment of our own making: a clock that went back would put it off for as
-- long as it jumped. A job that its user delayed waits for the moment that it was given. So many a tick, from the moment
-- `from` on; the next tick goes on where this one ended.
local function hasten_retries(P, now, from)
  local page = redis.call('ZRANGEBYSCORE', due_key(P), from, '+inf', 'WITHSCORES', 'LIMIT', 0, RETRIES_HASTENED)
  local moved = 0
  for i = 1, #page, 2 do
    local ref = page[i]
    local job = load_job(P, ref)
    if job and keeps_its_place(redis.call('HGET', job.key, 'hold')) then
      redis.call('ZADD', due_key(P), 'XX', int(now), ref)
      moved = moved + 1
    end
  end
  local last = page[2 * RETRIES_HASTENED] or ''
  redis.call('HSET', clock_key(P), 'hasten', last == from and moved == 0 and '(' .. last or last)
end

-- After a gap in Redis's own time (a clock jump, an outage, no dispatcher) every worker gets a whole lease, and after a
-- restart that was shorter the time to be heard: strikes are for the dead, not for those who could not be heard. Of one
-- that is not heard after it either, nobody knows whether it had left before: the gap may have taken that with it.
local function forgive_gap(P, now, lease_ms, gap_ms)
  local stored = redis.call('HMGET', clock_key(P), 'tick', 'ticked', 'hasten')
  local last, restarted = number(stored[1]), not ticked_here[P] or stored[2] ~= ticked_here[P]
  ticked_here[P] = int(now)
  redis.call('HSET', clock_key(P), 'tick', ticked_here[P], 'ticked', ticked_here[P])
  local hasten = now < last and int(now + LONGEST_RETRY_MS) or stored[3] or ''
  if hasten ~= '' then hasten_retries(P, now, hasten) end
  local gap = now < last or now - last > gap_ms
  if not gap and not restarted then return end
  for _, worker in ipairs(redis.call('ZRANGEBYSCORE', workers_key(P), 1, '+inf')) do
    if gap then
      redis.call('ZADD', workers_key(P), 'XX', int(now + lease_ms), worker)
    else
      redis.call('ZADD', workers_key(P), 'XX', 'GT', int(now + math.min(lease_ms, ANSWER_MS)), worker)
    end
    local at = redis.call('HGET', worker_key(P, worker), 'at')
    if at then redis.call('HSET', worker_key(P, worker), 'unheard', at) end
  end
end

local function ripen(P, now)
  local due = redis.call('ZRANGEBYSCORE', due_key(P), '-inf', int(now), 'WITHSCORES', 'LIMIT', 0, JOBS_A_CALL)
  for i = 1, #due, 2 do
    local ref = due[i]
    local job = load_job(P, ref)
    if job then demand_all(job) else put_away(P, ref) end
    redis.call('ZREM', due_key(P), ref)
    if job and job.state == 'delayed' then
      -- A retry keeps its score; a delayed job is scored now, or it would jump ahead of the lane's time.
      local f = redis.call('HMGET', job.key, 'hold', 'cost')
      if keeps_its_place(f[1]) and job.member and tonumber(job.score or '') then
        place_back(job)
      else
        place_anew(job, f[2])
        -- From now on it waits: until here it was put off as its user wished.
        redis.call('HSET', job.key, 'ripe', int(number(due[i + 1])))
      end
    end
  end
  return #due / 2
end

-- Jobs that were put off for others' sake, now that room is left.
local function recall(P, most)
  local back = 0
  if most == 0 then return back end
  for _, ref in ipairs(redis.call('ZRANGE', due_key(P), 0, LOOKED_THROUGH - 1)) do
    local job = load_job(P, ref)
    local late = job and job.state == 'delayed' and redis.call('HGET', job.key, 'hold') == 'late'
    if late and job.member and tonumber(job.score or '') then
      demand_all(job)
      redis.call('ZREM', due_key(P), ref)
      place_back(job)
      back = back + 1
      if back == most then break end
    end
  end
  return back
end

local function expire(P, now)
  local late = redis.call('ZRANGEBYSCORE', deadlines_key(P), '-inf', int(now), 'LIMIT', 0, JOBS_A_CALL)
  for _, ref in ipairs(late) do
    local job = load_job(P, ref)
    if job and not ENDED[job.state] then
      demand_all(job)
      end_early(job, 'expired', 'its deadline passed', now)
    else
      if not job then put_away(P, ref) end
      redis.call('ZREM', deadlines_key(P), ref)
    end
  end
  return #late
end

local function reclaim(P, now)
  local gone = 0
  for _, worker in ipairs(redis.call('ZRANGEBYSCORE', workers_key(P), '-inf', int(now), 'LIMIT', 0, 1)) do
    if empty_inbox(P, worker, 'lost', JOBS_A_CALL, now) then gone = gone + 1 end
    announce(P, 'load', worker)
  end
  return gone
end

-- What a worker has not begun need not wait for its lease's end. Its newest entries are those: others it has begun.
-- After a gap all seem silent until they are heard.
local function take_back_unstarted(P, now, lease_ms, quiet_ms)
  local silent = redis.call('ZRANGEBYSCORE', workers_key(P), '(' .. int(now), int(now + lease_ms - quiet_ms), 'LIMIT', 0,
    QUIET_A_CALL)
  for _, worker in ipairs(silent) do
    local f = try('HMGET', worker_key(P, worker), 'at', 'unheard') or {}
    if f[1] and f[1] ~= f[2] and now - number(f[1]) >= quiet_ms then
      for _, entry in ipairs(try('XREVRANGE', inbox_key(P, worker), '+', '-', 'COUNT', JOBS_A_CALL) or {}) do
        local job = stands_for(P, worker, entry)
        if job and job.state == 'assigned' then
          demand_all(job)
          give_back(job, 'none', 'its worker fell silent before it began', 0, now)
          tally(P, 'taken')
        end
      end
    end
  end
end

local function tick(KEYS, ARGV)
  local P, token, lead_ms, lease_ms, gap_ms, quiet_ms = prefix(KEYS), unpack(ARGV, 1, 5)
  set_strays_apart(P)
  if not take_lead(P, token, lead_ms, tonumber(gap_ms)) then return { 0, 0, 0, 0, -1, 0 } end
  local now = now_ms()
  redis.call('HSET', clock_key(P), 'limit:high', ARGV[6], 'limit:medium', ARGV[7], 'limit:low', ARGV[8],
    'quota:jobs', ARGV[9], 'quota:tokens', ARGV[10])
  forgive_gap(P, now, tonumber(lease_ms), tonumber(gap_ms))
  local ripened, expired, reclaimed = ripen(P, now), expire(P, now), reclaim(P, now)
  take_back_unstarted(P, now, tonumber(lease_ms), tonumber(quiet_ms))
  local recalled = recall(P, number(ARGV[11]))
  local head = redis.call('ZRANGE', due_key(P), 0, 0, 'WITHSCORES')
  local wait = head[2] and math.max(0, tonumber(head[2]) - now) or -1
  return { 1, ripened, expired, reclaimed, math.floor(math.min(wait, LONGEST_WAIT_MS)), recalled }
end

redis.register_function{ function_name = 'tf1_tick', callback = tick, flags = { 'allow-oom' } }
