-- Move due tasks to their streams: pending or retrying -> queued (attempt + 1 for retrying), or expired (spec §1).
-- KEYS  the queue's keys (parts/prelude.lua)
-- ARGV  from 5 per task: id, score as read, band, error ('' or why the record cannot be read)
-- Returns  {promoted, expired, refused}, and if some could not be moved {..., how many, the first one's error}
--@include prelude
local listened = is_future(call('HGET', META, 'listeners'))
--@include events
--@include record
--@include entries
--@include finish
--@include leave_schedule
local promoted, expired, refused, failed, reason = 0, 0, 0, 0, ''
local AGAIN = 5000 -- ms until a task that could not be moved is due again
-- The tail that names a task's locks. The token stands near the front, so it is often whole where the record is not; a
-- field of it that was cut lacks its ';' and is not found.
local function tail_of_damaged(raw)
  local at = 32 + (string.byte(raw, 31) or #raw)
  if at + 3 > #raw then return nil end
  local state = parse_live(sub(raw, at + 4, at + 3 + struct.unpack('<I4', raw, at)))
  return state and state.tail
end
-- A record that cannot be read is kept as raw bytes among the dead letters, once; its locks go with it (protocol 12).
local function refuse(id, raw)
  if raw then
    bury(id, raw)
    local tail = tail_of_damaged(raw)
    if tail then release_locks(id, tail, 'dead_lettered') end
    call('DEL', RECORD .. id)
    if string.byte(raw, 2) == 4 then call('HINCRBY', META, 'retrying', -1) end
  end
  call('ZREM', SCHEDULE, id)
  call('HINCRBY', META, 'strays', 1)
  refused = refused + 1
end
local function promote(id, score, band, failure)
  local standing = call('ZSCORE', SCHEDULE, id)
  if not standing or tonumber(standing) ~= tonumber(score) or tonumber(standing) > now then return end
  local raw = redis.pcall('GET', RECORD .. id)
  if type(raw) == 'table' then raw = nil end -- a key of another type: not ours, it stays
  local record = read_record(raw)
  local state = record and parse_live(record.token)
  if failure ~= '' or not state or (record.status ~= 1 and record.status ~= 4) then return refuse(id, raw) end
  if leave_schedule(id, record, state, band) then expired = expired + 1 else promoted = promoted + 1 end
end
-- What cannot be moved, because its stream has another type or its record holds nonsense, never blocks the others.
for i = 5, #ARGV, 4 do
  local moved, problem = pcall(promote, ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3])
  if not moved then
    call('ZADD', SCHEDULE, 'XX', integer(now + AGAIN), ARGV[i])
    failed = failed + 1
    if failed == 1 then reason = type(problem) == 'table' and problem.err or tostring(problem) end
  end
end
publish()
if failed > 0 then return {promoted, expired, refused, failed, reason} end
return {promoted, expired, refused}
