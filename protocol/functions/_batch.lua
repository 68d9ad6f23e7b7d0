-- Batches: which states may follow each, as in protocol/batches.py. Who owns one has written its random token into it.

local BATCH_GRACE_MS = 604800000   -- an ended batch that nobody has deleted in time

local BATCH_NEXT = {
  validating = { in_progress = true, failed = true, expired = true, cancelling = true },
  in_progress = { finalizing = true, failed = true, expired = true, cancelling = true },
  finalizing = { completed = true },
  cancelling = { cancelled = true },
}

-- A state's time is the first one at which it was reached, and stays.
local function batch_becomes(key, status, now)
  redis.call('HSET', key, 'status', status)
  redis.call('HSETNX', key, 'at:' .. status, now)
end

-- Its state and its owner's token; none where another type stands under the key.
local function batch_standing(key) return unpack(try('HMGET', key, 'status', 'token') or {}) end
