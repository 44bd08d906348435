-- Cancel one task, or ask its worker to (spec §5, protocol 10). The order of the scripts decides every race.
-- KEYS  the queue's keys (parts/prelude.lua)
-- ARGV  5 id
-- Returns  'cancelled' | 'requested <consumer>' | 'terminal <status code>' | 'unknown'
--@include prelude
local listened = is_future(call('HGET', META, 'listeners'))
--@include events
--@include record
--@include entries
--@include finish
local id = ARGV[5]
local value = call('HGET', LIVE, id)
if value then
  local state = parse_live(value)
  local band, envelope = locate(id, state.entry)
  local delivered = band and grouped('XPENDING', KEYS[STREAMS + band], GROUP, state.entry, state.entry, 1)[1]
  local holder = delivered and delivered[2]
  if state.kind == 'r' or (holder and holder ~= SHELF) then
    if not cancel_requested(state.tail) then call('HSET', LIVE, id, value .. 'c') end
    return 'requested ' .. (state.consumer or holder)
  end
  finish_here(id, 'cancelled', state, value, {cause = 'cancelled'}, envelope, history_of(id, state.tail), band)
  publish()
  return 'cancelled'
end
local raw = call('GET', RECORD .. id)
local record = read_record(raw)
if not record then return 'unknown' end
if record.status == 1 or record.status == 4 then
  local state = parse_live(record.token)
  local plain = {kind = 'p', attempt = state.attempt, released = state.released, entry = '', tail = state.tail,
    retrying = record.status == 4}
  finish_here(id, 'cancelled', plain, record.token, {cause = 'cancelled'}, record.envelope, record, nil)
  publish()
  return 'cancelled'
end
return 'terminal ' .. record.status
