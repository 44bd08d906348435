-- The status codes of many tasks: one digit each, '0' where nothing is known (any more).
-- KEYS  the queue's keys (parts/prelude.lua)
-- ARGV  from 5: ids
-- Returns  one string
--@include prelude
local ids, out = {}, {}
for i = 5, #ARGV do ids[i - 4] = ARGV[i] end
local live = call('HMGET', LIVE, unpack(ids))
for i = 1, #ids do
  if live[i] then
    out[i] = sub(live[i], 1, 1) == 'r' and '3' or '2'
  else
    local head = call('GETRANGE', RECORD .. ids[i], 0, 1)
    out[i] = #head == 2 and tostring(string.byte(head, 2)) or '0'
  end
end
return table.concat(out)
