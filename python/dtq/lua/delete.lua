-- Delete what is kept of a task that has ended: its record, its mention among the recent ones, its dead letter (spec §7).
-- KEYS  the queue's keys (parts/prelude.lua)
-- ARGV  5 id
-- Returns  'deleted' | 'live <status code>' (it has not ended) | 'unknown'
--@include prelude
--@include record
local id = ARGV[5]
local value = call('HGET', LIVE, id)
if value then return 'live ' .. (sub(value, 1, 1) == 'r' and STATUS.running or STATUS.queued) end
local raw = call('GET', RECORD .. id)
if not raw then return 'unknown' end
local record = read_record(raw)
if call('ZSCORE', SCHEDULE, id) then return 'live ' .. (record and record.status or STATUS.pending) end

-- every check is done: from here on only writes
call('DEL', RECORD .. id)
for name, code in pairs(STATUS) do
  if record and record.status == code then call('LREM', RECENT .. name, 0, id) end
end
if record and record.status == STATUS.dead_lettered and find(record.place, '^%d+%-%d+$') then
  call('XDEL', DEAD, record.place)
end
call('HINCRBY', META, 'deleted', 1)
return 'deleted'
