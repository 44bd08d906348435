-- Give a dead letter a new life: dead_lettered -> queued, the named exception of an operator (spec §1, §7, protocol 12).
-- KEYS  the queue's keys (parts/prelude.lua)
-- ARGV  5 dead-letter entry  6 id  7 envelope (encoded anew by the caller)  8 place, as for enqueue: band digit, then
--       t<ttl ms>; d<deadline ms>; u<fingerprint>,<ttl ms>; i<key>,<fingerprint>,<ttl ms>; b<batch>;
--       9 depth cap (0 off)
-- Returns  'requeued' | 'live <status code>' | 'ended <status code>' | 'gone' (the entry does not stand)
--          | 'deadline' | 'unique <holder>' | 'key <holder>' | 'full'; nothing is written but for 'requeued'
-- Attempt 1, released 0; the old attempts stay as history. The entry is named, so that of many at once one succeeds, and
-- a late copy cannot requeue a second death.
--@include prelude
local listened = is_future(call('HGET', META, 'listeners'))
--@include events
--@include record
--@include entries
local entry, id, envelope, place = ARGV[5], ARGV[6], ARGV[7], ARGV[8]
local value = call('HGET', LIVE, id)
if value then return 'live ' .. (sub(value, 1, 1) == 'r' and STATUS.running or STATUS.queued) end
local current = read_record(call('GET', RECORD .. id))
if current then
  if current.status == STATUS.pending or current.status == STATUS.retrying then return 'live ' .. current.status end
  -- another task has used this id since, or this one has died again
  if current.status ~= STATUS.dead_lettered then return 'ended ' .. current.status end
  if current.place ~= entry then return 'gone' end
end
local found = call('XRANGE', DEAD, entry, entry)[1]
local dead = found and found[2][1] == id and read_record(found[2][2])
if not dead then return 'gone' end
local options = {}
for letter, option in string.gmatch(sub(place, 2), '(%a)([^;]*);') do options[letter] = option end
if options.d and now >= tonumber(options.d) then return 'deadline' end
local fingerprint, unique_ttl = match(options.u or '', '^([^,]*),(%d+)$')
if fingerprint then
  local holder = call('GET', UNIQUE .. fingerprint)
  if holder and holder ~= id then return 'unique ' .. holder end
end
local key, work, key_ttl = match(options.i or '', '^([^,]*),([^,]*),(%d+)$')
local held = key and call('GET', IDEMPOTENCY .. key)
if held then
  local first, holder = match(held, '^[^ ]* ([^ ]*) ([^ ]*)')
  if holder ~= id then return 'key ' .. holder end
  work = first -- the key answers for what it was first used with, also when the payload was edited
end
-- the hard limit of an enqueue: this is one, too (spec §3)
local cap = tonumber(ARGV[9])
if cap > 0 and call('HLEN', LIVE) >= cap then return 'full' end

-- every check is done: from here on only writes
local tail = ''
if options.t then tail = tail .. 'x' .. integer(now + tonumber(options.t)) .. ';' end
if options.d then tail = tail .. 'd' .. options.d .. ';' end
if fingerprint then
  tail = tail .. 'u' .. fingerprint .. ';'
  call('SET', UNIQUE .. fingerprint, id, 'PX', unique_ttl)
end
if key then
  tail = tail .. 'i' .. key .. ';'
  if held then
    call('SET', IDEMPOTENCY .. key, 'processing ' .. work .. ' ' .. id, 'KEEPTTL')
  else
    call('SET', IDEMPOTENCY .. key, 'processing ' .. work .. ' ' .. id, 'PX', key_ttl)
  end
end
if options.b then tail = tail .. 'b' .. options.b .. ';' end
local times = {created = dead.created, started = 0, ended = 0}
call('SET', RECORD .. id, pack_record(0, {attempt = 1, released = 0}, times, '', '', '', '', dead.history))
local band = sub(place, 1, 1)
use_band(band)
local queued = call('XADD', STREAM .. band, '*', id, envelope)
call('HSET', LIVE, id, queued_value(1, 0, queued, tail_add(tail, 'h')))
call('XDEL', DEAD, entry)
call('LREM', RECENT .. 'dead_lettered', 1, id) -- it may die again, and is listed once
call('HINCRBY', META, 'requeued', 1)
emit('TASK_QUEUED', id, 1, nil, envelope_type(envelope))
publish()
return 'requeued'
