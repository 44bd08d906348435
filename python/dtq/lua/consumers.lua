-- Every consumer of a queue's groups, a name once a group, and how many entries it holds there.
-- KEYS  the queue's keys (parts/prelude.lua)
-- Returns  {name, pending, ...}
--@include prelude
local bands = call('HGET', META, 'bands') or ''
if not find(bands, '0', 1, true) then bands = bands .. '0' end -- a consumer is made in band 0's group (turn.lua)
local out = {}
for band in string.gmatch(bands, '%d') do
  local listed = redis.pcall('XINFO', 'CONSUMERS', STREAM .. band, GROUP)
  for _, facts in ipairs(listed) do -- none where the answer is an error: no such stream or group, nothing is held there
    local consumer = {}
    for i = 1, #facts, 2 do consumer[facts[i]] = facts[i + 1] end
    out[#out + 1], out[#out + 2] = consumer.name, consumer.pending
  end
end
return out
