-- KEYS events [leader]
-- ARGV [token]
-- Clears the hints that stood before the lanes are read; one that comes later wakes the dispatcher again.
-- → 1 | 0 when another leads: the hints are his
-- An older dispatcher names no leader, and an older function asks for none.
local function wake(KEYS, ARGV)
  if KEYS[2] and redis.call('GET', KEYS[2]) ~= ARGV[1] then return 0 end
  redis.call('XTRIM', KEYS[1], 'MAXLEN', 0)
  return 1
end

redis.register_function{ function_name = 'tf1_wake', callback = wake, flags = { 'allow-oom' } }
