-- KEYS batch
-- → the state before | '' when there is no such batch
-- Its owner, or the next one, withdraws its rows and ends it. One that is ending is left alone.
local function batch_cancel(KEYS)
  local status = try('HGET', KEYS[1], 'status')
  if not status then return '' end
  if BATCH_NEXT[status] and BATCH_NEXT[status].cancelling then
    batch_becomes(KEYS[1], 'cancelling', int(now_ms()))
  end
  return status
end

redis.register_function{ function_name = 'tf1_batch_cancel', callback = batch_cancel, flags = { 'allow-oom' } }
