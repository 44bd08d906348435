-- End the task whose entry is gone from its stream (protocol 4): the caller found its id by scanning the live hash in slices.
-- KEYS  the queue's keys (parts/prelude.lua)
-- ARGV  5 id  6 entry
-- Returns  1 ended, 0 when the task does not name that entry any more, or the entry stands after all
--@include prelude
local listened = is_future(call('HGET', META, 'listeners'))
--@include events
--@include record
--@include entries
--@include finish
local id, entry = ARGV[5], ARGV[6]
local value = call('HGET', LIVE, id)
local state = value and parse_live(value)
if not state or state.entry ~= entry or locate(id, entry) then return 0 end
finish_here(id, 'dead_lettered', state, value, {cause = 'message lost', error_class = 'MessageLost',
  error = 'the stream entry of this task is gone; its payload cannot be recovered'}, '', history_of(id, state.tail), nil)
publish()
return 1
