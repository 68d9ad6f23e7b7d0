-- KEYS workers inbox
-- ARGV worker command
-- → the inbox entry | '' when no such worker holds a lease
local function command(KEYS, ARGV)
  local P, worker = prefix(KEYS), ARGV[1]
  if not leased(P, worker) then return '' end
  return redis.call('XADD', inbox_key(P, worker), '*', 'k', 'command', 'c', ARGV[2])
end

redis.register_function{ function_name = 'tf1_command', callback = command, flags = { 'allow-oom' } }
