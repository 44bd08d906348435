-- Take pending and retrying tasks off the schedule, a slice a call (protocol 18). No record of them is left.
-- KEYS  the queue's keys (parts/prelude.lua)
-- ARGV  5 how many to pass over  6 made at this time at the latest, ms (0: now)  7 most tasks  8 most bytes
-- Returns  {purged, how many to pass over in the next call, the time of 6, through (1)}
--@include prelude
local listened = is_future(call('HGET', META, 'listeners'))
--@include events
--@include record
--@include entries
--@include finish
local skip, latest, most, room = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8])
if latest == 0 then latest = now end
local purged, seen = 0, 0
local ids = call('ZRANGE', SCHEDULE, skip, skip + most - 1)
for _, id in ipairs(ids) do
  if room <= 0 then break end
  seen = seen + 1
  local raw = call('GET', RECORD .. id)
  local record = read_record(raw)
  room = room - #(raw or '')
  if record and record.created > latest then
    skip = skip + 1
  else
    call('ZREM', SCHEDULE, id)
    call('DEL', RECORD .. id)
    if raw and string.byte(raw, 2) == STATUS.retrying then call('HINCRBY', META, 'retrying', -1) end
    local state = record and parse_live(record.token)
    if state then release_locks(id, state.tail, 'cancelled') end
    emit('TASK_CANCELLED', id, record and record.attempt or 0, nil, record and envelope_type(record.envelope))
    purged = purged + 1
  end
end
if purged > 0 then
  call('HINCRBY', META, 'cancelled', purged)
  call('HINCRBY', META, 'purged', purged)
end
publish()
return {purged, skip, integer(latest), (seen == #ids and #ids < most) and 1 or 0}
