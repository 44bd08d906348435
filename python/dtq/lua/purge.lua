-- Take queued tasks off one band's stream, a slice a call; what runs stays, and the stream is never trimmed (protocol 18).
-- KEYS  the queue's keys (parts/prelude.lua)
-- ARGV  5 band  6 entry to go on behind, '-' for the first  7 last entry of the purge  8 most entries  9 most bytes
-- Returns  {purged, entry to go on behind, or '' when the band is through}
-- What a reader got and has not adopted goes too: nothing starts before its claim is answered (protocol 14), and the
-- adopting turn does not find it in its pending list.
--@include prelude
local listened = is_future(call('HGET', META, 'listeners'))
--@include events
--@include record
--@include entries
--@include finish
local band, after, last, most, room = ARGV[5], ARGV[6], ARGV[7], tonumber(ARGV[8]), tonumber(ARGV[9])
local stream = STREAM .. band
local purged, through = 0, false
local function purge(entries)
  local ids, gone, records, acked = {}, {}, {}, {}
  for i = 1, #entries do ids[i] = entries[i][2][1] end
  local values = call('HMGET', LIVE, unpack(ids))
  for i = 1, #entries do
    local state = values[i] and parse_live(values[i])
    if state and state.kind == 'q' and state.entry == entries[i][1] then
      gone[#gone + 1] = ids[i]
      records[#records + 1] = RECORD .. ids[i]
      acked[#acked + 1] = state.entry
      release_locks(ids[i], state.tail, 'cancelled')
      emit('TASK_CANCELLED', ids[i], state.attempt, nil, envelope_type(entries[i][2][2]))
    end
  end
  if #gone == 0 then return end
  call('HDEL', LIVE, unpack(gone))
  call('DEL', unpack(records)) -- histories
  grouped('XACK', stream, GROUP, unpack(acked))
  call('XDEL', stream, unpack(acked))
  purged = purged + #gone
end
repeat
  local asked = math.min(most, 50)
  local entries = call('XRANGE', stream, after == '-' and after or '(' .. after, last, 'COUNT', asked)
  if #entries > 0 then
    purge(entries)
    after = entries[#entries][1]
    most = most - #entries
    for i = 1, #entries do room = room - #(entries[i][2][2] or '') end
  end
  through = #entries < asked
until through or most <= 0 or room <= 0
if purged > 0 then
  call('HINCRBY', META, 'cancelled', purged)
  call('HINCRBY', META, 'purged', purged)
end
publish()
return {purged, through and '' or after}
