-- KEYS leader clock workers events deadlines lane:high lane:medium lane:low due dead [inbox …]
-- ARGV token (member worker delay_ms why)…
--   worker '' parks the job in `due` for delay_ms, with its score, why 'late': until it is recalled; delay 0 beside it sets aside a job that can't be read,
--   one below 0 refuses a job whose first token is predicted so many ms after it could run
--   why is kept with the job as it is; '' for nothing
-- → ok (attempt | gone | worker | expired | parked | malformed | refused)… | not_leader
-- Counters are written once a call, not once a job.
local function look_at(P, worker, now)
  local lease = redis.call('ZSCORE', workers_key(P), worker)
  local f = try('HMGET', worker_key(P, worker), 'state', 'slots', 'held', 'solo') or {}
  return {
    ready = lease and tonumber(lease) > now and f[1] == 'active',
    slots = number(f[2]), held = number(f[3]), solo = f[4] == '1', taken = 0,
  }
end

local function has_room(worker, strikes)
  if not worker.ready or worker.solo or worker.held >= worker.slots then return false end
  return strikes < STRIKES_OUT - 1 or worker.held == 0
end

local function move_to_inbox(job, name, attempt, why, now)
  redis.call('ZREM', lane_key(job.P, job.priority), job.member)
  local entry = write('XADD', inbox_key(job.P, name), '*', 'k', 'assign', 'j', job.ref, 'a', attempt)
  redis.call('HSET', job.key, 'state', 'assigned', 'attempt', attempt, 'worker', name, 'entry', entry, 'frames', 0,
    'assigned', int(now), 'why', why)
end

-- The lane's time follows what was taken, but never passes the head that is left: a newcomer must not stand behind
-- jobs that the policy passed over.
local function advance(P, priority, score)
  local head = redis.call('ZRANGE', lane_key(P, priority), 0, 0, 'WITHSCORES')
  if head[2] then score = math.min(score, tonumber(head[2])) end
  local field = 'vt:' .. priority
  if score > number(redis.call('HGET', clock_key(P), field)) then redis.call('HSET', clock_key(P), field, exact(score)) end
end

local function write_counters(P, workers, waiting, scores)
  for name, worker in pairs(workers) do
    if worker.taken > 0 then write('HINCRBY', worker_key(P, name), 'held', worker.taken) end
    if worker.now_solo then redis.call('HSET', worker_key(P, name), 'solo', 1) end
  end
  for priority, tenants in pairs(waiting) do
    for tenant, n in pairs(tenants) do count_waiting(P, priority, tenant, -n) end
  end
  for priority, score in pairs(scores) do advance(P, priority, score) end
end

local function take(job, name, worker, attempt, why, round)
  move_to_inbox(job, name, attempt, why, round.now)
  worker.held, worker.taken = worker.held + 1, worker.taken + 1
  if job.strikes == STRIKES_OUT - 1 then worker.solo, worker.now_solo = true, true end
  local tenant, tenants = tenant_of(job.ref), round.waiting[job.priority] or {}
  tenants[tenant] = (tenants[tenant] or 0) + 1
  round.waiting[job.priority] = tenants
  round.scores[job.priority] = math.max(round.scores[job.priority] or 0, number(job.score))
end

-- An entry without its job was not written by us: it would stand at the head of its lane for ever.
local function drop_orphan(P, member, ref)
  if ref then put_away(P, ref) end
  for _, priority in ipairs({ 'high', 'medium', 'low' }) do redis.call('ZREM', lane_key(P, priority), member) end
  return 'gone'
end

local function assign_one(P, member, name, delay, why, attempt, round)
  local ref = string.match(member, '^%d+:([^:]+:.+)$')
  local job = ref and load_job(P, ref)
  if not job then return drop_orphan(P, member, ref) end
  if job.state ~= 'queued' or job.member ~= member or round.ends[ref] then return drop_orphan(P, member) end
  if name == '' and delay == 0 then
    round.ends[ref] = { job = job, malformed = true }
    return 'malformed'
  end
  if job.deadline <= round.now then
    round.ends[ref] = { job = job }
    return 'expired'
  end
  if name == '' and delay < 0 then
    round.ends[ref] = { job = job, refused = -delay }
    return 'refused'
  end
  if name == '' then
    redis.call('ZREM', lane_key(P, job.priority), member)
    place_in_due(job, round.now + delay, why == 'late' and why)
    return 'parked'
  end
  local worker = round.workers[name] or look_at(P, name, round.now)
  round.workers[name] = worker
  if not has_room(worker, job.strikes) then return 'worker' end
  take(job, name, worker, attempt, why, round)
  return attempt
end

-- Last in the call: when one of them is denied, the moves before it are whole.
local function write_ends(ends, now)
  for _, an_end in pairs(ends) do
    demand_all(an_end.job)
    if an_end.malformed then
      set_aside(an_end.job, 'malformed', 'its stored description can not be read', now)
    elseif an_end.refused then
      local wait = an_end.refused
      local message = 'its first token would come ' .. int(wait) .. ' ms after it could run, which is too late'
      finalise(an_end.job, 'failed', failure(an_end.job, 'failed', 'unreachable', message, wait), 'unreachable', now, '')
    else
      end_early(an_end.job, 'expired', 'its deadline passed while it waited', now)
    end
  end
end

local function demand_keys(P, ARGV, jobs)
  if trusted(P) then return end
  local workers = {}
  for i = 0, jobs - 1 do
    local tenant, own_id = string.match(ARGV[4 * i + 2], '^%d+:([^:]+):(.+)$')
    if tenant then
      demand('HSET', job_key(P, tenant .. ':' .. own_id))
      demand('HINCRBY', tenant_key(P, tenant))
    end
    local worker = ARGV[4 * i + 3]
    if worker ~= '' and not workers[worker] then
      workers[worker] = true
      demand('HINCRBY', worker_key(P, worker))
    end
  end
end

local function assign(KEYS, ARGV)
  local P = prefix(KEYS)
  if redis.call('GET', KEYS[1]) ~= ARGV[1] then return { 'not_leader' } end
  local jobs, reply = math.min((#ARGV - 1) / 4, 100), { 'ok' }
  local round = { now = now_ms(), workers = {}, waiting = {}, scores = {}, ends = {} }
  demand_keys(P, ARGV, jobs)
  local last = number_attempts(P, jobs) - jobs
  for i = 0, jobs - 1 do
    local member, worker, delay, why = unpack(ARGV, 4 * i + 2, 4 * i + 5)
    reply[i + 2] = assign_one(P, member, worker, tonumber(delay), why, int(last + i + 1), round)
  end
  write_counters(P, round.workers, round.waiting, round.scores)
  write_ends(round.ends, round.now)
  return reply
end

redis.register_function{ function_name = 'tf1_assign', callback = assign, flags = { 'allow-oom' } }
