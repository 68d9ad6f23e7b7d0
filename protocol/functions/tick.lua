-- KEYS leader clock workers due deadlines events lane:high lane:medium lane:low dead
-- ARGV token lead_ms lease_ms gap_ms limit:high limit:medium limit:low quota:jobs quota:tokens   (0: none)
-- → lead ripened expired reclaimed next_due_ms   (counts ≤ 100; next_due_ms: until the next one ripens, -1 when none waits)
local JOBS_A_CALL = 100

local function take_lead(P, token, lead_ms)
  local leader = redis.call('GET', leader_key(P))
  if leader and leader ~= token then return false end
  redis.call('SET', leader_key(P), token, 'PX', lead_ms)
  return true
end

-- After a gap in Redis's own time (a clock jump, an outage, no dispatcher) every worker gets a whole lease: strikes are
-- for the dead, not for those who could not be heard.
local function forgive_gap(P, now, lease_ms, gap_ms)
  local last = tonumber(redis.call('HGET', clock_key(P), 'tick') or 0) or 0
  redis.call('HSET', clock_key(P), 'tick', int(now))
  if now >= last and now - last <= gap_ms then return end
  for _, worker in ipairs(redis.call('ZRANGEBYSCORE', workers_key(P), 1, '+inf')) do
    redis.call('ZADD', workers_key(P), 'XX', int(now + lease_ms), worker)
  end
end

local function ripen(P, now)
  local due = redis.call('ZRANGEBYSCORE', due_key(P), '-inf', int(now), 'LIMIT', 0, JOBS_A_CALL)
  for _, ref in ipairs(due) do
    local job = load_job(P, ref)
    if job then demand_all(job) end
    redis.call('ZREM', due_key(P), ref)
    if job and job.state == 'delayed' then
      -- A retry keeps its score; a delayed job is scored now, or it would jump ahead of the lane's time.
      local f = redis.call('HMGET', job.key, 'hold', 'cost')
      if f[1] == '1' then place_back(job) else place_anew(job, f[2]) end
    end
  end
  return #due
end

local function expire(P, now)
  local late = redis.call('ZRANGEBYSCORE', deadlines_key(P), '-inf', int(now), 'LIMIT', 0, JOBS_A_CALL)
  for _, ref in ipairs(late) do
    local job = load_job(P, ref)
    if job and not ENDED[job.state] then
      demand_all(job)
      end_early(job, 'expired', 'its deadline passed', now)
    else
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

local function tick(KEYS, ARGV)
  local P, token, lead_ms, lease_ms, gap_ms = prefix(KEYS), unpack(ARGV, 1, 4)
  if not take_lead(P, token, lead_ms) then return { 0, 0, 0, 0, -1 } end
  local now = now_ms()
  redis.call('HSET', clock_key(P), 'limit:high', ARGV[5], 'limit:medium', ARGV[6], 'limit:low', ARGV[7],
    'quota:jobs', ARGV[8], 'quota:tokens', ARGV[9])
  forgive_gap(P, now, tonumber(lease_ms), tonumber(gap_ms))
  local ripened, expired, reclaimed = ripen(P, now), expire(P, now), reclaim(P, now)
  local head = redis.call('ZRANGE', due_key(P), 0, 0, 'WITHSCORES')
  local wait = head[2] and math.max(0, tonumber(head[2]) - now) or -1
  return { 1, ripened, expired, reclaimed, math.floor(wait) }
end

redis.register_function{ function_name = 'tf1_tick', callback = tick, flags = { 'allow-oom' } }
