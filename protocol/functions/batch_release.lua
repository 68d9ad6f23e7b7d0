-- KEYS batch living
-- ARGV ref token pause_ms
-- → 1 | 0 when the token's owner has lost it
-- Another may take it at once; nobody is told of it before the pause is over.
local function batch_release(KEYS, ARGV)
  local status, owner = batch_standing(KEYS[1])
  if not status or not BATCH_NEXT[status] or owner ~= ARGV[2] then return 0 end
  write('ZADD', KEYS[2], int(now_ms() + tonumber(ARGV[3])), ARGV[1])
  redis.call('HDEL', KEYS[1], 'token')
  return 1
end

redis.register_function{ function_name = 'tf1_batch_release', callback = batch_release, flags = { 'allow-oom' } }
