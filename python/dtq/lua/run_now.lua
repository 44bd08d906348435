-- Make a pending or retrying task due now: what its due time would do is done at once (spec §1).
-- KEYS  the queue's keys (parts/prelude.lua)
-- ARGV  5 id
-- Returns  'queued' | 'expired <ttl or deadline>' (it was too late for it, and it has ended so) | 'live <status code>' (it is
--          queued or runs) | 'ended <status code>' | 'damaged' (its record cannot be read) | 'unknown'
--@include prelude
local listened = is_future(call('HGET', META, 'listeners'))
--@include events
--@include record
--@include entries
--@include finish
--@include leave_schedule
local id = ARGV[5]
local value = call('HGET', LIVE, id)
if value then return 'live ' .. (sub(value, 1, 1) == 'r' and STATUS.running or STATUS.queued) end
local raw = call('GET', RECORD .. id)
if not raw then return 'unknown' end
local record = read_record(raw)
if not record then return 'damaged' end
if record.status ~= STATUS.pending and record.status ~= STATUS.retrying then return 'ended ' .. record.status end
local state = parse_live(record.token)
local band = envelope_head(record.envelope)
if not state or not band or band > 9 then return 'damaged' end

-- every check is done: from here on only writes
local why = leave_schedule(id, record, state, band)
publish()
return why and 'expired ' .. why or 'queued'
