-- KEYS models
-- ARGV model pool record
-- → '' | the pool that serves this model already
local function register(KEYS, ARGV)
  local readable, old = pcall(cjson.decode, write('HGET', KEYS[1], ARGV[1]) or '{}')
  local pool = readable and type(old) == 'table' and old.pool
  if pool and pool ~= ARGV[2] then return pool end
  redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
  return ''
end

redis.register_function{ function_name = 'tf1_register', callback = register, flags = { 'allow-oom' } }
