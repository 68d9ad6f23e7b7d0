-- KEYS leader clock workers events deadlines lane:high lane:medium lane:low due [inbox …]
-- ARGV token (ref worker delay_ms)…   worker '' parks the job in `due` for delay_ms, with its score
-- → ok (attempt | gone | worker | expired | parked)… | not_leader
local function has_room(P, worker, strikes, now, seen)
  local w = seen[worker]
  if not w then
    local lease = redis.call('ZSCORE', workers_key(P), worker)
    local f = redis.call('HMGET', worker_key(P, worker), 'state', 'slots', 'held', 'solo')
    w = {
      ready = lease and tonumber(lease) > now and f[1] == 'ready',
      slots = tonumber(f[2] or 0) or 0, held = tonumber(f[3] or 0) or 0, solo = f[4] == '1',
    }
    seen[worker] = w
  end
  if not w.ready or w.solo or w.held >= w.slots then return false end
  if strikes == STRIKES_OUT - 1 then
    if w.held > 0 then return false end
    w.solo = true
    redis.call('HSET', worker_key(P, worker), 'solo', 1)
  end
  w.held = w.held + 1
  return true
end

local function move_to_inbox(job, worker, now)
  redis.call('ZREM', lane_key(job.P, job.priority), job.member)
  count_waiting(job, -1)
  local attempt = int(redis.call('HINCRBY', clock_key(job.P), 'attempt', 1))
  local entry = redis.call('XADD', inbox_key(job.P, worker), '*', 'k', 'assign', 'j', job.ref, 'a', attempt)
  redis.call('HINCRBY', worker_key(job.P, worker), 'held', 1)
  redis.call('HSET', job.key, 'state', 'assigned', 'attempt', attempt, 'worker', worker, 'entry', entry,
    'frames', 0, 'assigned', int(now), 'started', 0)
  return attempt
end

local function assign_one(P, ref, worker, delay, now, seen, taken)
  local job = load_job(P, ref)
  if not job or job.state ~= 'queued' then return 'gone' end
  if job.deadline <= now then
    end_early(job, 'expired', 'its deadline passed while it waited', now)
    return 'expired'
  end
  if worker == '' then
    redis.call('ZREM', lane_key(P, job.priority), job.member)
    place_in_due(job, now + delay, 1)
    return 'parked'
  end
  if not has_room(P, worker, job.strikes, now, seen) then return 'worker' end
  taken[job.priority] = math.max(taken[job.priority] or 0, job.score)
  return move_to_inbox(job, worker, now)
end

-- The lane's time follows what was taken, but never passes the head that is left: a newcomer must not stand behind
-- jobs that the policy passed over.
local function advance(P, taken)
  for _, priority in ipairs({ 'high', 'medium', 'low' }) do
    local score = taken[priority]
    if score then
      local head = redis.call('ZRANGE', lane_key(P, priority), 0, 0, 'WITHSCORES')
      if head[2] then score = math.min(score, tonumber(head[2])) end
      local field = 'vt:' .. priority
      if score > (tonumber(redis.call('HGET', clock_key(P), field) or 0) or 0) then
        redis.call('HSET', clock_key(P), field, exact(score))
      end
    end
  end
end

local function assign(KEYS, ARGV)
  local P = prefix(KEYS)
  if redis.call('GET', leader_key(P)) ~= ARGV[1] then return { 'not_leader' } end
  local now, seen, taken, reply = now_ms(), {}, {}, { 'ok' }
  for i = 2, math.min(#ARGV, 301), 3 do
    reply[#reply + 1] = assign_one(P, ARGV[i], ARGV[i + 1], tonumber(ARGV[i + 2]), now, seen, taken)
  end
  advance(P, taken)
  return reply
end

redis.register_function{ function_name = 'tf1_assign', callback = assign, flags = { 'allow-oom' } }
