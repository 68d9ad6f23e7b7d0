-- KEYS workers worker inbox events
-- ARGV worker label state slots lease_ms report join [acknowledged inbox entry…]
-- → ok held | lost
local function beat(KEYS, ARGV)
  local P, worker, label, state, slots, lease_ms, report, join = prefix(KEYS), unpack(ARGV, 1, 7)
  local lease = redis.call('ZSCORE', workers_key(P), worker)
  if lease and tonumber(lease) == 0 or not lease and join ~= '1' then return { 'lost' } end
  local now, key = now_ms(), worker_key(P, worker)
  redis.call('ZADD', workers_key(P), int(now + tonumber(lease_ms)), worker)
  if not lease then redis.call('HSET', key, 'held', 0, 'solo', 0, 'joined', int(now)) end
  redis.call('HSET', key, 'label', label, 'state', state, 'slots', slots, 'report', report, 'at', int(now))
  for i = 8, #ARGV do redis.call('XDEL', inbox_key(P, worker), ARGV[i]) end
  announce(P, 'load', worker)
  return { 'ok', tonumber(redis.call('HGET', key, 'held')) }
end

redis.register_function{ function_name = 'tf1_beat', callback = beat, flags = { 'allow-oom' } }
