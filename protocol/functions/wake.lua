-- KEYS events
-- Clears the hints that stood before the lanes are read; one that comes later wakes the dispatcher again.
local function wake(KEYS)
  redis.call('XTRIM', KEYS[1], 'MAXLEN', 0)
  return 1
end

redis.register_function{ function_name = 'tf1_wake', callback = wake, flags = { 'allow-oom' } }
