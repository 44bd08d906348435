-- Take pending and retrying tasks off the schedule, a slice a call (protocol 18). No record of them is left.
-- KEYS  the queue's keys (parts/prelude.lua)
-- ARGV  5 task to go on behind, '' for the first  6 its due time, ms  7 made at this time at the latest, ms (0: now)
--       8 most tasks  9 most bytes
-- Returns  {purged, task to go on behind, its due time, the time of 7, through (1)}
-- The place is a task, not a number of tasks: what falls due meanwhile leaves, and moves those behind it.
--@include prelude
local listened = is_future(call('HGET', META, 'listeners'))
--@include events
--@include record
--@include entries
--@include finish
local behind, due, latest, most, room = ARGV[5], ARGV[6], tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9])
if latest == 0 then latest = now end
local start = 0
if behind ~= '' then
  local standing = call('ZSCORE', SCHEDULE, behind)
  if standing and tonumber(standing) == tonumber(due) then
    start = call('ZRANK', SCHEDULE, behind) + 1
  else
    start = call('ZCOUNT', SCHEDULE, '-inf', '(' .. due) -- it has left: those of its millisecond are looked at again
  end
end
local purged, seen = 0, 0
local found = call('ZRANGE', SCHEDULE, start, start + most - 1, 'WITHSCORES')
for i = 1, #found, 2 do
  if room <= 0 then break end
  local id = found[i]
  behind, due = id, found[i + 1]
  seen = seen + 1
  local raw = call('GET', RECORD .. id)
  local record = read_record(raw)
  room = room - #(raw or '')
  if not record or record.created <= latest then
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
return {purged, behind, due, integer(latest), seen < most and 2 * seen == #found and 1 or 0}
