-- KEYS job body workers tokens
-- ARGV ref attempt worker [times]   (an older worker asks for no times, and could not read them)
-- → ok spec body priority tries strikes deadline_left_ms log [waiting since assigned started lost] | stale
--   waiting, since, assigned, started: times; since: from when on it could run
--   lost: attempt, start and end of the one before, where nobody else can tell of it
--   log: what the attempts before have said, as XRANGE answers; empty when there is none, or more than can be read here
-- Marks the attempt as started before an engine sees the body: only such an attempt can earn a strike.
local MOST_FRAMES = 10000

local function start(KEYS, ARGV)
  local P, job = prefix(KEYS), KEYS[1]
  local f = redis.call('HMGET', job, 'state', 'attempt', 'worker', 'spec', 'priority', 'tries', 'strikes', 'deadline',
    'log', 'submitted', 'back', 'assigned', 'started', 'lost', 'ripe')
  if not HELD[f[1]] or f[2] ~= ARGV[2] or f[3] ~= ARGV[3] or not leased(P, ARGV[3]) then return { 'stale' } end
  local now = now_ms()
  local started = f[1] == 'assigned' and now or number(f[13])
  if f[1] == 'assigned' then redis.call('HSET', job, 'state', 'running', 'started', int(now)) end
  local lost = ARGV[4] and f[14] or ''
  if lost ~= '' then redis.call('HSET', job, 'lost', '') end
  local body = redis.call('GET', KEYS[2])
  local log = {}
  if f[9] and number(try('XLEN', KEYS[4])) <= MOST_FRAMES then log = try('XRANGE', KEYS[4], '-', '+') or {} end
  local reply = { 'ok', f[4] or '', body or '', f[5] or '', number(f[6]), number(f[7]), int(number(f[8]) - now), log }
  if ARGV[4] then
    local since = math.max(number(f[10]), number(f[15]))
    local times = { int(number(f[11] or since)), int(since), int(number(f[12])), int(started), lost }
    for _, each in ipairs(times) do reply[#reply + 1] = each end
  end
  return reply
end

redis.register_function{ function_name = 'tf1_start', callback = start, flags = { 'allow-oom' } }
