-- KEYS workers worker inbox events prefixes
-- ARGV worker label state slots lease_ms report join models acknowledged added removed
--   the last three are JSON lists: inbox entries to delete, prefix hashes that its engine holds now, and no longer
-- → ok held | lost
local function each(list, act)
  if list ~= '[]' then
    for _, value in ipairs(cjson.decode(list)) do act(value) end
  end
end

-- While nobody does, a report can wait for the dispatcher's next look: many workers report many times a second.
local function anyone_waits(P)
  for _, priority in ipairs({ 'high', 'medium', 'low' }) do
    if redis.call('EXISTS', lane_key(P, priority)) == 1 then return true end
  end
  return false
end

local function beat(KEYS, ARGV)
  local P, worker, label, state, slots, lease_ms, report, join = prefix(KEYS), unpack(ARGV, 1, 7)
  local models, acknowledged, added, removed = unpack(ARGV, 8, 11)
  local lease = redis.call('ZSCORE', workers_key(P), worker)
  if lease and tonumber(lease) == 0 or not lease and join ~= '1' then return { 'lost' } end
  local now, key, prefixes = now_ms(), worker_key(P, worker), prefixes_key(P, worker)
  redis.call('ZADD', workers_key(P), int(now + tonumber(lease_ms)), worker)
  if not lease then write('HSET', key, 'held', 0, 'solo', 0, 'joined', int(now)) end
  write('HSET', key, 'label', label, 'state', state, 'slots', slots, 'report', report, 'at', int(now),
    'models', models)
  each(acknowledged, function(entry) try('XDEL', inbox_key(P, worker), entry) end)
  each(removed, function(hash) write('SREM', prefixes, hash) end)
  each(added, function(hash) write('SADD', prefixes, hash) end)
  if added ~= '[]' or removed ~= '[]' then write('HINCRBY', key, 'prefixed', 1) end
  if not lease or anyone_waits(P) then announce(P, 'load', worker) end
  return { 'ok', number(redis.call('HGET', key, 'held')) }
end

redis.register_function{ function_name = 'tf1_beat', callback = beat, flags = { 'allow-oom' } }
