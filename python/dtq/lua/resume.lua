-- Resume a queue, or one task type of it (protocol 15, 16). What a type had parked is moved by unpark.lua.
-- KEYS  the queue's keys (parts/prelude.lua)
-- ARGV  5 task type, '' for the queue  6 most bells
-- Returns  1 resumed, 0 when it was not paused
--@include prelude
local task_type = ARGV[5]
if task_type ~= '' then
  local types = call('HGET', META, 'paused_types')
  local from, till = find(types or '', ';' .. task_type .. ';', 1, true)
  if not from then return 0 end
  types = sub(types, 1, from) .. sub(types, till + 1)
  if types == ';' then call('HDEL', META, 'paused_types') else call('HSET', META, 'paused_types', types) end
  -- Until a walk that began after this one resumption is through, the leader goes on walking (broker/operating.py).
  call('HSET', META, 'unparking', call('HINCRBY', META, 'resumptions', 1))
  return 1
end
if call('HDEL', META, 'paused') == 0 then return 0 end
--@include entries
ring_children(tonumber(ARGV[6])) -- they find what was shelved meanwhile
return 1
