-- KEYS batch batches living ended hooks
-- ARGV ref id
-- → 1 | 0 when it has not ended
-- What is left of a batch that is not there goes too; one that lives is in no list of ended ones.
local function batch_drop(KEYS, ARGV)
  local status = try('HGET', KEYS[1], 'status')
  local lives = status and BATCH_NEXT[status]
  for i = lives and 4 or 3, 5 do try('ZREM', KEYS[i], ARGV[1]) end
  if lives then return 0 end
  redis.call('DEL', KEYS[1])
  try('ZREM', KEYS[2], ARGV[2])
  return 1
end

redis.register_function{ function_name = 'tf1_batch_drop', callback = batch_drop, flags = { 'allow-oom' } }
