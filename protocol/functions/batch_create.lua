-- KEYS batch batches living
-- ARGV ref id spec most
-- → 1 | 0 when it is there already, the same | -1 when another is | -2 when the tenant has `most` batches
local function batch_create(KEYS, ARGV)
  local spec = try('HGET', KEYS[1], 'spec')
  if spec then return spec == ARGV[3] and 0 or -1 end
  if (try('ZCARD', KEYS[2]) or 0) >= tonumber(ARGV[4]) then return -2 end
  local now = int(now_ms())
  write('ZADD', KEYS[2], now, ARGV[2])
  write('ZADD', KEYS[3], 0, ARGV[1])
  write('HSET', KEYS[1], 'spec', ARGV[3])
  batch_becomes(KEYS[1], 'validating', now)
  return 1
end

-- No allow-oom: a full Redis refuses new work and finishes what it has.
redis.register_function{ function_name = 'tf1_batch_create', callback = batch_create }
