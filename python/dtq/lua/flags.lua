-- The live values of tasks that a worker executes: it looks for the cancel flag by itself (spec §5, protocol 10).
-- KEYS  the queue's keys (parts/prelude.lua)
-- ARGV  from 5 per task: band, entry, id ('' where it is not known yet: the entry tells)
-- Returns  per task: id, live value; '' where there is none
--@include prelude
local out = {}
for i = 5, #ARGV, 3 do
  local id = ARGV[i + 2]
  if id == '' then
    local found = call('XRANGE', STREAM .. ARGV[i], ARGV[i + 1], ARGV[i + 1])[1]
    id = found and found[2][1] or ''
  end
  out[#out + 1] = id
  out[#out + 1] = id ~= '' and call('HGET', LIVE, id) or ''
end
return out
