-- What is spent and fades, and the buckets of API keys, which are made of that.

-- An amount fades at `rate` a minute. While the clock is behind `since`, nothing does.
local function faded(amount, since, rate, now)
  return math.max(0, amount - math.max(0, now - since) * rate / 60000)
end

-- How long until so much of it has.
local function fading_ms(amount, rate) return math.ceil(amount * 60000 / rate) + 1 end

-- Where the clock went back, for whoever is refused: what is spent fades from now on, not from when it has caught up.
local function fade_from_now(key, field, since, now)
  if since > now then redis.call('HSET', key, field, int(now)) end
end

local SOME_TIME_MS = 1000           -- until a job may have ended
local DEBT_MOST_MIN = 10            -- what an engine counted is owed, but not for longer
local KINDS = { 'requests', 'tokens', 'jobs', 'bytes' }
local FADES = { requests = true, tokens = true }

-- A key's bucket: what it has spent of requests and tokens, which fades at as many a minute as it may have, and the jobs
-- and the bytes of their bodies that it has alive. `limits` are those of the last submit where none are given.
local function open_bucket(P, ref, id, now, limits)
  local key = bucket_key(P, ref, id)
  local v = try('HMGET', key, 'requests', 'tokens', 'jobs', 'bytes', 'at', 'requests_a_minute', 'tokens_a_minute') or {}
  limits = limits or { requests = number(v[6]), tokens = number(v[7]) }
  local bucket = { key = key, limits = limits, at = number(v[5]) }
  bucket.jobs, bucket.bytes = math.max(0, number(v[3])), math.max(0, number(v[4]))
  for i, kind in ipairs({ 'requests', 'tokens' }) do
    local rate = limits[kind]
    bucket[kind] = rate > 0 and faded(number(v[i]), bucket.at, rate, now) or 0
  end
  return bucket
end

-- While it has a job alive the key stays; after that until what is spent has faded.
local function close_bucket(bucket, now)
  local limits, longest_ms = bucket.limits, 1
  write('HSET', bucket.key, 'requests', exact(bucket.requests), 'tokens', exact(bucket.tokens),
    'jobs', int(bucket.jobs), 'bytes', int(bucket.bytes), 'at', int(now),
    'requests_a_minute', int(limits.requests), 'tokens_a_minute', int(limits.tokens))
  if bucket.jobs > 0 then return end
  for kind in pairs(FADES) do
    if bucket[kind] > 0 then longest_ms = math.max(longest_ms, fading_ms(bucket[kind], limits[kind])) end
  end
  redis.call('PEXPIRE', bucket.key, int(longest_ms))
end

-- For an answer: limit, how many are left, ms until all are again; of requests, then of tokens.
local function add_figures(answer, bucket)
  if not bucket then return answer end
  for _, kind in ipairs({ 'requests', 'tokens' }) do
    local limit, spent = bucket.limits[kind], bucket[kind]
    answer[#answer + 1] = limit
    answer[#answer + 1] = math.max(0, math.floor(limit - spent))
    answer[#answer + 1] = spent > 0 and fading_ms(spent, limit) or 0
  end
  return answer
end

-- All of what a job needs, or nothing. The refusal names the limit that must be waited for longest.
local function over_bucket(bucket, need, now)
  local refusal, longest_ms = nil, 0
  for _, kind in ipairs(KINDS) do
    local limit = bucket.limits[kind]
    local left = limit - bucket[kind]
    if limit > 0 and need[kind] > limit then return { 'over', kind, limit, need[kind] } end
    if limit > 0 and need[kind] > left then
      local ms = FADES[kind] and fading_ms(need[kind] - left, limit) or SOME_TIME_MS
      if ms > longest_ms then
        refusal, longest_ms = { 'limited', kind, limit, math.max(0, math.floor(left)), ms }, ms
      end
    end
  end
  if not refusal then return nil end
  fade_from_now(bucket.key, 'at', bucket.at, now)
  return add_figures(refusal, bucket)
end

-- What a job took, as it stands in the job's hash.
local function take_from(bucket, id, need, prompt, streams, now)
  for _, kind in ipairs(KINDS) do
    if bucket.limits[kind] > 0 or not FADES[kind] then bucket[kind] = bucket[kind] + need[kind] end
  end
  close_bucket(bucket, now)
  if bucket.jobs == 1 then redis.call('PERSIST', bucket.key) end
  local tokens = bucket.limits.tokens > 0 and need.tokens or 0
  return table.concat({ id, int(tokens), prompt, int(need.bytes), streams }, ' ')
end

-- Of a job that ended before an engine told its usage. An answer that nobody reads along may be whole, for all we know.
local function used_so_far(job, taken, prompt, streams)
  if not job.started then return 0 end
  if streams == '0' and not job.log then return taken end
  return math.min(prompt + number(redis.call('HGET', job.key, 'said')), taken)
end

-- Gives back what an ended job took and did not use. `used` is what its engine counted, nil when it did not.
local function settle(job, used, now)
  local id, taken, prompt, bytes, streams = string.match(job.bucket, '^([a-z0-9_-]+) (%d+) (%d+) (%d+) ([01])$')
  if not id then return end
  local bucket = open_bucket(job.P, job.ref, id, now)
  bucket.jobs = math.max(0, bucket.jobs - 1)
  bucket.bytes = math.max(0, bucket.bytes - number(bytes))
  local limit = bucket.limits.tokens
  if limit > 0 and number(taken) > 0 then
    used = used or used_so_far(job, number(taken), number(prompt), streams)
    bucket.tokens = math.min(math.max(0, bucket.tokens + used - number(taken)), DEBT_MOST_MIN * limit)
  end
  close_bucket(bucket, now)
end
