-- Read a bounded batch of due tasks; promote.lua checks each again before it moves it.
-- KEYS  the queue's keys (parts/prelude.lua)
-- ARGV  5 most tasks  6 most bytes
-- Returns  {now, next due time or '', id, score, record, ...}  (times in ms, a missing record is ''); the next due time has
--       passed where the bytes have cut the batch
--@include prelude
local due = call('ZRANGEBYSCORE', SCHEDULE, '-inf', integer(now), 'WITHSCORES', 'LIMIT', 0, tonumber(ARGV[5]))
local out, bytes, most = {integer(now), ''}, 0, tonumber(ARGV[6])
for i = 1, #due, 2 do
  local record = redis.pcall('GET', RECORD .. due[i]) or ''
  if type(record) == 'table' then record = '' end -- a key of another type
  bytes = bytes + #record
  if i > 1 and bytes > most then
    out[2] = due[i + 1]
    return out
  end
  out[#out + 1], out[#out + 2], out[#out + 3] = due[i], due[i + 1], record
end
local next_due = call('ZRANGEBYSCORE', SCHEDULE, '(' .. integer(now), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
if next_due[2] then out[2] = next_due[2] end
return out
