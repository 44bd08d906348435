-- The tasks that some consumers hold as running, the oldest claims of each. It only looks.
-- KEYS  the queue's keys (parts/prelude.lua)
-- ARGV  5 most tasks of each consumer  then the consumers
-- Returns  per task: number of its consumer (from 0), id, live value, task type
--@include prelude
--@include record
local bands, out = call('HGET', META, 'bands') or '', {}
for i = 6, #ARGV do
  local consumer, left = ARGV[i], tonumber(ARGV[5])
  for place = 1, #bands do
    local stream = STREAM .. sub(bands, place, place)
    local pending = left > 0 and redis.pcall('XPENDING', stream, GROUP, '-', '+', left, consumer) or {}
    for k = 1, #pending do
      local entry = pending[k][1]
      local found = call('XRANGE', stream, entry, entry)[1]
      local value = found and call('HGET', LIVE, found[2][1])
      local state = value and parse_live(value)
      if state and state.kind == 'r' and state.entry == entry and state.consumer == consumer then
        local n = #out
        out[n + 1], out[n + 2], out[n + 3], out[n + 4] = i - 6, found[2][1], value, envelope_type(found[2][2]) or ''
        left = left - 1
      end
    end
  end
end
return out
