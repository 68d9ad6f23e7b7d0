-- KEYS batch living
-- ARGV ref token lease_ms
-- → how often it was taken | 0 when another owns it, or it has ended | -1 when what stands there is no batch
local function batch_take(KEYS, ARGV)
  local status, owner = batch_standing(KEYS[1])
  if not status or not BATCH_NEXT[status] then
    try('ZREM', KEYS[2], ARGV[1])
    -- What has ended expires, and so does what was put away.
    return not ENDED[status] and redis.call('PEXPIRE', KEYS[1], DEAD_KEEP_MS, 'NX') == 1 and -1 or 0
  end
  local now, lease = now_ms(), number(try('ZSCORE', KEYS[2], ARGV[1]))
  if owner and owner ~= ARGV[2] and lease > now then return 0 end
  write('ZADD', KEYS[2], int(now + tonumber(ARGV[3])), ARGV[1])
  redis.call('HSET', KEYS[1], 'token', ARGV[2])
  return write('HINCRBY', KEYS[1], 'takes', 1)
end

redis.register_function{ function_name = 'tf1_batch_take', callback = batch_take, flags = { 'allow-oom' } }
