-- KEYS job body result tokens lane due deadlines clock events tenant [done]
-- ARGV ref priority nonce digest body spec cost delay_ms deadline_ms keep_ms reply
-- → ok state attempt created | conflict | full scope limit
local NONCES_KEPT = 8
local DEFAULT_LIMIT = { high = 10000, medium = 1000000, low = 1000000 }

-- A job that is there already: the same one for the same body, unless it ended without a result.
local function submit_again(job, nonce, digest, reply, keep)
  local seen = string.find(' ' .. job.nonces .. ' ', ' ' .. nonce .. ' ', 1, true)
  if seen then return { 'ok', job.state, job.attempt, 0 } end
  if ENDED[job.state] and job.state ~= 'completed' then return nil end
  if job.digest ~= digest then return { 'conflict' } end
  if reply ~= '' then
    redis.call('HSET', job.key, 'reply', reply)
    if ENDED[job.state] then
      redis.call('XADD', done_key(job.P, reply), '*', 'j', job.ref, 'a', int(job.attempt), 's', job.state)
      redis.call('PEXPIRE', done_key(job.P, reply), keep)
    end
  end
  return { 'ok', job.state, job.attempt, 0 }
end

local function over_limit(P, priority, tenant)
  local shard = redis.call('HMGET', clock_key(P), 'q:' .. priority, 'limit:' .. priority)
  local limit = tonumber(shard[2] or '') or DEFAULT_LIMIT[priority]
  if (tonumber(shard[1] or 0) or 0) >= limit then return { 'full', 'lane', limit } end
  local mine = tonumber(redis.call('HGET', tenant_key(P, tenant), 'q:' .. priority) or 0) or 0
  local half = math.ceil(limit / 2)
  if mine >= half then return { 'full', 'tenant', half } end
end

local function submit(KEYS, ARGV)
  local P, ref, priority, nonce, digest, body, spec = prefix(KEYS), unpack(ARGV, 1, 6)
  local cost, delay, deadline, keep, reply = unpack(ARGV, 7, 11)
  local old = load_job(P, ref)
  if old then
    local answer = submit_again(old, nonce, digest, reply, keep)
    if answer then return answer end
  end
  local tenant = string.match(ref, '^([^:]+):')
  local full = over_limit(P, priority, tenant)
  if full then return full end

  local now = now_ms()
  local nonces = nonce
  if old then
    local kept = {}
    for n in string.gmatch(old.nonces, '%S+') do kept[#kept + 1] = n end
    kept[#kept + 1] = nonce
    nonces = table.concat(kept, ' ', math.max(1, #kept - NONCES_KEPT + 1))
    redis.call('DEL', old.key, result_key(P, ref), tokens_key(P, ref))
  end
  local job = {
    P = P, ref = ref, key = job_key(P, ref), tenant = tenant, priority = priority,
    cost = tonumber(cost),
    -- A new run needs a number above the old run's, or a follower would take its frames for seen ones.
    attempt = old and redis.call('HINCRBY', clock_key(P), 'attempt', 1) or 0,
  }
  redis.call('HSET', job.key, 'priority', priority, 'nonces', nonces, 'digest', digest, 'spec', spec, 'cost', cost,
    'keep', keep, 'reply', reply, 'attempt', int(job.attempt), 'submitted', int(now), 'deadline', int(now + deadline))
  redis.call('SET', body_key(P, ref), body)
  redis.call('ZADD', deadlines_key(P), int(now + deadline), ref)
  count_waiting(job, 1)
  if tonumber(delay) > 0 then place_in_due(job, now + delay, '') else place_anew(job) end
  return { 'ok', tonumber(delay) > 0 and 'delayed' or 'queued', job.attempt, 1 }
end

-- No allow-oom: a full Redis refuses new work and finishes what it has.
redis.register_function{ function_name = 'tf1_submit', callback = submit }
