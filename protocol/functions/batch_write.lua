-- KEYS batch living ended hooks
-- ARGV ref token lease_ms status keep_ms notify [field value]…
-- → the state that it has now | '' when the token's owner has lost it
-- Renews the lease. A state that may not follow, as after a cancel, is not taken: then only the lease is renewed.
-- One that ends the batch frees it, and says until when it is kept; it goes by itself should nobody clean up.
local function batch_write(KEYS, ARGV)
  local key, ref, wanted = KEYS[1], ARGV[1], ARGV[4]
  local status, owner = batch_standing(key)
  if not status or not BATCH_NEXT[status] or owner ~= ARGV[2] then return '' end
  local now = now_ms()
  write('ZADD', KEYS[2], int(now + tonumber(ARGV[3])), ref)
  local moves = wanted ~= '' and wanted ~= status
  if moves and not BATCH_NEXT[status][wanted] then return status end
  for i = 7, #ARGV, 2 do redis.call('HSET', key, ARGV[i], ARGV[i + 1]) end
  if not moves then return status end
  batch_becomes(key, wanted, int(now))
  if BATCH_NEXT[wanted] then return wanted end
  redis.call('HDEL', key, 'token')
  redis.call('PEXPIRE', key, int(tonumber(ARGV[5]) + BATCH_GRACE_MS))
  redis.call('ZREM', KEYS[2], ref)
  write('ZADD', KEYS[3], int(now + tonumber(ARGV[5])), ref)
  if ARGV[6] == '1' then write('ZADD', KEYS[4], int(now), ref) end
  return wanted
end

redis.register_function{ function_name = 'tf1_batch_write', callback = batch_write, flags = { 'allow-oom' } }
