-- KEYS batch living
-- ARGV ref token lease_ms
-- → how often it was taken | 0 when another owns it, or it has ended
local function batch_take(KEYS, ARGV)
  local status, owner = unpack(redis.call('HMGET', KEYS[1], 'status', 'token'))
  if not status or not BATCH_NEXT[status] then
    redis.call('ZREM', KEYS[2], ARGV[1])
    return 0
  end
  local now, lease = now_ms(), tonumber(redis.call('ZSCORE', KEYS[2], ARGV[1]) or 0)
  if owner and owner ~= ARGV[2] and lease > now then return 0 end
  redis.call('ZADD', KEYS[2], int(now + tonumber(ARGV[3])), ARGV[1])
  redis.call('HSET', KEYS[1], 'token', ARGV[2])
  return redis.call('HINCRBY', KEYS[1], 'takes', 1)
end

redis.register_function{ function_name = 'tf1_batch_take', callback = batch_take, flags = { 'allow-oom' } }
