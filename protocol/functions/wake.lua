-- KEYS leader events
-- ARGV token
-- Clears the hints that stood before the lanes are read; one that comes later wakes the dispatcher again.
-- → 1 | 0 when another leads: the hints are his
local function wake(KEYS, ARGV)
  if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
  redis.call('XTRIM', KEYS[2], 'MAXLEN', 0)
  return 1
end

redis.register_function{ function_name = 'tf1_wake', callback = wake, flags = { 'allow-oom' } }
