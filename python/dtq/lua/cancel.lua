-- Cancel tasks, or ask their workers to (spec §5, protocol 10). The order of the scripts decides every race.
-- KEYS  the queue's keys (parts/prelude.lua)
-- ARGV  5 front of the workers' cancel channels  6 task type, '' for any  7 codes of the statuses that may be cancelled, '' for any
--       8 dry run: 1 changes nothing  then the ids
-- Returns  an answer for each id: 'cancelled' | 'requested <consumer>' | 'terminal <status code>' | 'unknown' | 'other' (kept: it is
--          of another type or status)
--@include prelude
local listened = is_future(call('HGET', META, 'listeners'))
--@include events
--@include record
--@include entries
--@include finish
local wanted_type, wanted_statuses, dry = ARGV[6], ARGV[7], ARGV[8] == '1'

local function wanted(status, envelope)
  return (wanted_statuses == '' or find(wanted_statuses, status, 1, true) ~= nil)
    and (wanted_type == '' or envelope_type(envelope) == wanted_type)
end
-- The flag is what counts; the word to the worker may be lost, or forbidden, and it finds the flag by itself.
local function ask(id, state, value)
  if not cancel_requested(state.tail) then call('HSET', LIVE, id, value .. 'c') end
  if state.kind == 'r' then
    redis.pcall('PUBLISH', ARGV[5] .. worker_of(state.consumer), cjson.encode({queue = match(LIVE, '{(.*)}'), id = id,
      entry = state.entry, attempt = state.attempt, consumer = state.consumer, seq = integer(state.seq)}))
  end
end
local function cancel_live(id, value)
  local state = parse_live(value)
  local band, envelope = locate(id, state.entry)
  if not wanted(state.kind == 'r' and '3' or '2', envelope) then return 'other' end
  local delivered = band and grouped('XPENDING', STREAM .. band, GROUP, state.entry, state.entry, 1)[1]
  local holder = delivered and delivered[2]
  local shelved = holder == SHELF or holder == PARKED
  -- a running task on the shelf (mark `m`) is executed by nobody: its worker is gone
  if (state.kind == 'r' and not (shelved and tail_has(state.tail, 'm'))) or (holder and not shelved) then
    if not dry then ask(id, state, value) end
    return 'requested ' .. (state.consumer or holder)
  end
  if not dry then
    finish_here(id, 'cancelled', state, value, {cause = 'cancelled'}, envelope, history_of(id, state.tail), band)
  end
  return 'cancelled'
end
local function cancel(id)
  local value = call('HGET', LIVE, id)
  if value then return cancel_live(id, value) end
  local record = read_record(call('GET', RECORD .. id))
  if not record then return 'unknown' end
  if record.status ~= 1 and record.status ~= 4 then return 'terminal ' .. record.status end
  if not wanted(tostring(record.status), record.envelope) then return 'other' end
  if not dry then
    local state = parse_live(record.token)
    local plain = {kind = 'p', attempt = state.attempt, released = state.released, entry = '', tail = state.tail,
      retrying = record.status == 4}
    finish_here(id, 'cancelled', plain, record.token, {cause = 'cancelled'}, record.envelope, record, nil)
  end
  return 'cancelled'
end

local answers = {}
for i = 9, #ARGV do answers[i - 8] = cancel(ARGV[i]) end
publish()
return answers
