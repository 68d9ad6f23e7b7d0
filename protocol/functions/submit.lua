-- KEYS job body result tokens lane due deadlines clock events tenant dead [done]
-- ARGV ref priority nonce digest body spec cost delay_ms deadline_ms keep_ms reply
-- → ok state attempt created | conflict | full scope limit
local NONCES_KEPT = 8
local DEFAULT_LIMIT = { high = 10000, medium = 1000000, low = 1000000 }

-- The last nonces that this id was submitted with.
local function with_nonce(nonces, nonce)
  local kept = {}
  for n in string.gmatch(nonces, '%S+') do kept[#kept + 1] = n end
  kept[#kept + 1] = nonce
  return table.concat(kept, ' ', math.max(1, #kept - NONCES_KEPT + 1))
end

-- A job that is there already: the same one for the same body, unless it ended without a result.
local function submit_again(job, digest, nonces, nonce, new_digest, reply)
  local answer = { 'ok', job.state, tonumber(job.attempt), 0 }
  if string.find(' ' .. nonces .. ' ', ' ' .. nonce .. ' ', 1, true) then
    -- A write that changes nothing: whoever waits until it is safe waits for the first submit too.
    redis.call('HSET', job.key, 'nonces', nonces)
    return answer
  end
  if ENDED[job.state] and job.state ~= 'completed' then return nil end
  if digest ~= new_digest then return { 'conflict' } end
  redis.call('HSET', job.key, 'nonces', with_nonce(nonces, nonce))
  if reply ~= '' then
    redis.call('HSET', job.key, 'reply', reply)
    if ENDED[job.state] then
      redis.call('XADD', done_key(job.P, reply), '*', 'j', job.ref, 'a', job.attempt, 's', job.state)
      redis.call('PEXPIRE', done_key(job.P, reply), job.keep)
    end
  end
  return answer
end

-- A new run over an old one: the last nonces stay known, and the attempt number rises above the old run's, or a follower
-- would take the new frames for seen ones.
local function replace(job, dead, nonces, nonce)
  if dead then redis.call('XDEL', dead_key(job.P), dead) end
  redis.call('DEL', job.key, result_key(job.P, job.ref), tokens_key(job.P, job.ref))
  local attempt = redis.call('HINCRBY', clock_key(job.P), 'attempt', 1)
  return with_nonce(nonces, nonce), int(attempt)
end

local function over_limit(priority, lane, mine)
  local limit = tonumber(lane.limit or '') or DEFAULT_LIMIT[priority]
  if number(lane.waiting) >= limit then return { 'full', 'lane', limit } end
  local half = math.ceil(limit / 2)
  if number(mine) >= half then return { 'full', 'tenant', half } end
end

local function submit(KEYS, ARGV)
  local P, ref, p, nonce, digest, body, spec = prefix(KEYS), unpack(ARGV, 1, 6)
  local cost, delay, deadline, keep, reply = unpack(ARGV, 7, 11)
  local job, clock, tenant = KEYS[1], KEYS[8], KEYS[10]
  local old, nonces, attempt = redis.call('HMGET', job, 'state', 'digest', 'nonces', 'dead'), nonce, '0'
  if old[1] then
    local answer = submit_again(load_job(P, ref), old[2], old[3], nonce, digest, reply)
    if answer then return answer end
  end
  local c = redis.call('HMGET', clock, 'q:' .. p, 'limit:' .. p, 'vt:' .. p, 'weight:' .. tenant_of(ref), 'seq')
  local lane = { waiting = c[1], limit = c[2], vt = c[3], weight = c[4], seq = c[5] }
  local t = redis.call('HMGET', tenant, 'q:' .. p, 'tag:' .. p)
  local full = over_limit(p, lane, t[1])
  if full then return full end
  if old[1] then nonces, attempt = replace(load_job(P, ref), old[4], old[3], nonce) end

  local now = now_ms()
  local waiting = { 'q:' .. p, int(number(c[1]) + 1) }
  local mine = { 'q:' .. p, int(number(t[1]) + 1) }
  local fields = {
    'state', 'queued', 'priority', p, 'nonces', nonces, 'digest', digest, 'spec', spec, 'keep', keep,
    'submitted', int(now), 'deadline', int(now + tonumber(deadline)),
  }
  local function set(name, value) fields[#fields + 1], fields[#fields + 2] = name, value end
  if reply ~= '' then set('reply', reply) end
  if attempt ~= '0' then set('attempt', attempt) end
  local queued = tonumber(delay) == 0
  if queued then
    local place = fair_place(ref, cost, lane, t[2])
    waiting[3], waiting[4], mine[3], mine[4] = 'seq', place.seq, 'tag:' .. p, place.tag
    set('member', place.member)
    set('score', place.score)
    redis.call('ZADD', KEYS[5], place.score, place.member)
  else
    fields[2] = 'delayed'
    set('cost', cost)  -- it is scored when it ripens
    redis.call('ZADD', KEYS[6], int(now + tonumber(delay)), ref)
  end
  redis.call('HSET', clock, unpack(waiting))
  redis.call('HSET', tenant, unpack(mine))
  if mine[2] == '1' then redis.call('PERSIST', tenant) end
  redis.call('HSET', job, unpack(fields))
  redis.call('SET', KEYS[2], body)
  redis.call('ZADD', KEYS[7], int(now + tonumber(deadline)), ref)
  if queued then announce(P, 'submitted', p) end
  return { 'ok', fields[2], tonumber(attempt), 1 }
end

-- No allow-oom: a full Redis refuses new work and finishes what it has.
redis.register_function{ function_name = 'tf1_submit', callback = submit }
