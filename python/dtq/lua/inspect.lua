-- Everything known of some tasks, read at one instant.
-- KEYS  the queue's keys (parts/prelude.lua)
-- ARGV  from 5: ids
-- Returns  per id: live value or '', envelope of its entry or '', record or '', due time in ms or ''
--@include prelude
--@include record
--@include entries
local out = {}
for i = 5, #ARGV do
  local id = ARGV[i]
  local value = call('HGET', LIVE, id)
  local envelope = ''
  local state = value and parse_live(value)
  if state then
    local _
    _, envelope = locate(id, state.entry)
  end
  local n, record = #out, call('GET', RECORD .. id) or ''
  -- attempts of a task whose live value was taken away by hand: nothing is known of it, as states.lua says too
  if not value and string.byte(record, 2) == 0 then record = '' end
  out[n + 1], out[n + 2], out[n + 3] = value or '', envelope or '', record
  out[n + 4] = not value and call('ZSCORE', SCHEDULE, id) or ''
end
return out
