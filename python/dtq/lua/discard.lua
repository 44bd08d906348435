-- Take entries off the dead-letter stream. Their tasks stay dead_lettered for their retention, marked as discarded.
-- KEYS  the queue's keys (parts/prelude.lua)
-- ARGV  from 5 per dead letter: its entry, id ('' for what was no task)
-- Returns  how many stood
--@include prelude
--@include record
local discarded = 0
for i = 5, #ARGV, 2 do
  local entry, id = ARGV[i], ARGV[i + 1]
  if call('XDEL', DEAD, entry) == 1 then
    discarded = discarded + 1
    local raw = id ~= '' and call('GET', RECORD .. id)
    local record = raw and read_record(raw)
    if record and record.status == STATUS.dead_lettered and record.place == entry then
      call('SET', RECORD .. id, sub(raw, 1, 30) .. string.char(#DISCARDED) .. DISCARDED .. sub(raw, 32 + #record.place), 'KEEPTTL')
    end
  end
end
if discarded > 0 then call('HINCRBY', META, 'discarded', discarded) end
return discarded
