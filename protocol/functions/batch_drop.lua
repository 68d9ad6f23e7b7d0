-- KEYS batch batches living ended hooks
-- ARGV ref id
-- → 1 | 0 when it has not ended
-- What is left of a batch that is not there goes too.
local function batch_drop(KEYS, ARGV)
  local status = redis.call('HGET', KEYS[1], 'status')
  if status and BATCH_NEXT[status] then return 0 end
  redis.call('DEL', KEYS[1])
  redis.call('ZREM', KEYS[2], ARGV[2])
  for i = 3, 5 do redis.call('ZREM', KEYS[i], ARGV[1]) end
  return 1
end

redis.register_function{ function_name = 'tf1_batch_drop', callback = batch_drop, flags = { 'allow-oom' } }
