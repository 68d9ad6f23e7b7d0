-- KEYS job body result tokens lane due deadlines clock events tenant dead [done] [bucket]
-- ARGV ref priority nonce digest body spec cost delay_ms deadline_ms keep_ms reply how
--   [key_id requests_a_minute tokens_a_minute jobs bytes prompt_tokens streams]   (of an API key; 0: no limit)
--   how: 1, whoever reads the result forgets it; 2, a failure stays, and is found as it is; 3, both
-- → ok state attempt created figures | conflict | full scope limit | quota what limit retry_after_ms
--   | limited kind limit remaining retry_after_ms figures | over kind limit needed
--   figures, of an API key: limit remaining reset_ms, of its requests and of its tokens
local NONCES_KEPT = 8
local DEFAULT_LIMIT = { high = 10000, medium = 1000000, low = 1000000 }

-- The last nonces that this id was submitted with.
local function with_nonce(nonces, nonce)
  local kept = {}
  for n in string.gmatch(nonces, '%S+') do kept[#kept + 1] = n end
  kept[#kept + 1] = nonce
  return table.concat(kept, ' ', math.max(1, #kept - NONCES_KEPT + 1))
end

-- Whether a job that is there has ended, and its end is not to be found: it gives way to a new run.
local function gives_way(job, same, failure_stays)
  if not ENDED[job.state] or job.state == 'completed' then return false end
  return not (failure_stays and same and job.state == 'failed' and try('GET', result_key(job.P, job.ref)))
end

-- A job that is there already: the same one for the same body, unless it ended without a result.
local function submit_again(job, digest, nonces, nonce, new_digest, reply, failure_stays)
  local answer = { 'ok', job.state, tonumber(job.attempt), 0 }
  if string.find(' ' .. nonces .. ' ', ' ' .. nonce .. ' ', 1, true) then
    -- A write that changes nothing: whoever waits until it is safe waits for the first submit too.
    redis.call('HSET', job.key, 'nonces', nonces)
    return answer
  end
  if gives_way(job, digest == new_digest, failure_stays) then return nil end
  if digest ~= new_digest then return { 'conflict' } end
  redis.call('HSET', job.key, 'nonces', with_nonce(nonces, nonce))
  if reply ~= '' then
    redis.call('HSET', job.key, 'reply', reply)
    if ENDED[job.state] then
      local done = done_key(job.P, job.ref, reply)
      redis.call('XADD', done, '*', 'j', job.ref, 'a', job.attempt, 's', job.state)
      redis.call('PEXPIRE', done, job.keep)
    end
  end
  return answer
end

-- A new run over an old one: the last nonces stay known, and the attempt number rises above the old run's, or a follower
-- would take the new frames for seen ones.
local function replace(job, dead, nonces, nonce)
  -- First of all: if it fails, the old run is still there.
  local attempt = number_attempts(job.P, 1)
  if dead and string.find(dead, '^%d+%-%d+$') then try('XDEL', dead_key(job.P), dead) end
  redis.call('DEL', job.key, result_key(job.P, job.ref), tokens_key(job.P, job.ref))
  return with_nonce(nonces, nonce), int(attempt)
end

local function over_limit(priority, lane, mine)
  local limit = tonumber(lane.limit or '') or DEFAULT_LIMIT[priority]
  if number(lane.waiting) >= limit then return { 'full', 'lane', limit } end
  local half = math.ceil(limit / 2)
  if number(mine) >= half then return { 'full', 'tenant', half } end
end

-- A tenant's own limits, where there are any: jobs waiting in all lanes, and tokens a minute. What it has spent fades at
-- that rate; while it is a minute's worth or more, the tenant waits, so that one large job is never refused for its size.
-- Answers the refusal, and what is spent by now.
local function over_quota(key, jobs, tokens, t, now)
  local waiting = number(t[3]) + number(t[4]) + number(t[5])
  if jobs > 0 and waiting >= jobs then return { 'quota', 'jobs', jobs, SOME_TIME_MS }, 0 end
  if tokens == 0 then return nil, 0 end
  local spent = faded(number(t[6]), number(t[7]), tokens, now)
  if spent < tokens then return nil, spent end
  fade_from_now(key, 'spent_at', number(t[7]), now)
  return { 'quota', 'tokens', tokens, fading_ms(spent - tokens, tokens) }, spent
end

-- The bucket of the API key that the job counts for, and what the job needs of it; nil without one.
local function bucket_for(P, ref, ARGV, now)
  if not ARGV[13] then return nil end
  local limits = {}
  for i, kind in ipairs(KINDS) do limits[kind] = tonumber(ARGV[13 + i]) end
  return open_bucket(P, ref, ARGV[13], now, limits), { requests = 1, tokens = number(ARGV[7]), jobs = 1, bytes = #ARGV[5] }
end

local function submit(KEYS, ARGV)
  local P, ref, p, nonce, digest, body, spec = prefix(KEYS), unpack(ARGV, 1, 6)
  local cost, delay, deadline, keep, reply, how = unpack(ARGV, 7, 12)
  local job, clock, tenant = KEYS[1], KEYS[8], KEYS[10]
  local old, nonces, attempt = redis.call('HMGET', job, 'state', 'digest', 'nonces', 'dead'), nonce, '0'
  local before, known, now = old[1] and load_job(P, ref), old[3] or '', now_ms()
  local bucket, need = bucket_for(P, ref, ARGV, now)
  if before then
    local answer = submit_again(before, old[2], known, nonce, digest, reply, number(how) >= 2)
    if answer then return answer[1] == 'ok' and add_figures(answer, bucket) or answer end
  end
  local c = redis.call('HMGET', clock, 'q:' .. p, 'limit:' .. p, 'vt:' .. p, 'weight:' .. tenant_of(ref), 'seq',
    'quota:jobs', 'quota:tokens')
  local lane = { waiting = c[1], limit = c[2], vt = c[3], weight = c[4], seq = c[5] }
  local t = redis.call('HMGET', tenant, 'q:' .. p, 'tag:' .. p, 'q:high', 'q:medium', 'q:low', 'spent', 'spent_at')
  local quota = number(c[7])
  local refusal, spent = over_quota(tenant, number(c[6]), quota, t, now)
  refusal = over_limit(p, lane, t[1]) or refusal or bucket and over_bucket(bucket, need, now)
  if refusal then return refusal end
  -- What is no job, though it stands under the job's name, gives way to one.
  if old[1] then nonces, attempt = replace({ P = P, ref = ref, key = job }, old[4], known, nonce) end

  local waiting = { 'q:' .. p, int(number(c[1]) + 1) }
  local mine = { 'q:' .. p, int(number(t[1]) + 1) }
  local fields = {
    'state', 'queued', 'priority', p, 'nonces', nonces, 'digest', digest, 'spec', spec, 'keep', keep,
    'submitted', int(now), 'deadline', int(now + tonumber(deadline)),
  }
  local function set(name, value) fields[#fields + 1], fields[#fields + 2] = name, value end
  if reply ~= '' then set('reply', reply) end
  if number(how) % 2 == 1 then set('once', 1) end
  if attempt ~= '0' then set('attempt', attempt) end
  if bucket then set('bucket', take_from(bucket, ARGV[13], need, ARGV[18], ARGV[19], now)) end
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
  if quota > 0 then redis.call('HSET', tenant, 'spent', exact(spent + number(cost)), 'spent_at', int(now)) end
  if mine[2] == '1' then redis.call('PERSIST', tenant) end
  redis.call('HSET', job, unpack(fields))
  redis.call('SET', KEYS[2], body)
  write('ZADD', KEYS[7], int(now + tonumber(deadline)), ref)
  if queued then announce(P, 'submitted', ref) end
  return add_figures({ 'ok', fields[2], tonumber(attempt), 1 }, bucket)
end

-- No allow-oom: a full Redis refuses new work and finishes what it has.
redis.register_function{ function_name = 'tf1_submit', callback = submit }
