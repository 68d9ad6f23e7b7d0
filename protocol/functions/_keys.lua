-- Key names, as in protocol/keys.py. `P` is what all keys of a shard begin with: "tf:{pool.shard}:".
local function prefix(KEYS) return string.match(KEYS[1], '^(tf:{[^}]+}:)') end
local function clock_key(P) return P .. 'clock' end
local function events_key(P) return P .. 'events' end
local function due_key(P) return P .. 'due' end
local function deadlines_key(P) return P .. 'deadlines' end
local function workers_key(P) return P .. 'workers' end
local function leader_key(P) return P .. 'leader' end
local function dead_key(P) return P .. 'dead' end
local function lane_key(P, priority) return P .. 'lane:' .. priority end
local function worker_key(P, worker) return P .. 'worker:' .. worker end
local function inbox_key(P, worker) return P .. 'inbox:' .. worker end
local function prefixes_key(P, worker) return P .. 'prefixes:' .. worker end
local function tenant_key(P, tenant) return P .. 'tenant:' .. tenant end
-- `ref` is the job's: its tenant stands in it.
local function bucket_key(P, ref, id) return P .. 'bucket:' .. string.match(ref, '^[^:]*') .. ':' .. id end
local function done_key(P, ref, name) return P .. 'done:' .. string.match(ref, '^[^:]*') .. ':' .. name end
local function job_key(P, ref) return P .. 'job:' .. ref end
local function body_key(P, ref) return P .. 'body:' .. ref end
local function result_key(P, ref) return P .. 'result:' .. ref end
local function tokens_key(P, ref) return P .. 'tokens:' .. ref end
