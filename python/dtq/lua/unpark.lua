-- Move parked entries whose type is not paused (any more) to the shelf, a slice a call (protocol 15, 16).
-- KEYS  the queue's keys (parts/prelude.lua)
-- ARGV  5 the walk: '' begins one  6 band  7 entry to go on behind, '-' for the first  8 most entries looked at
-- Returns  {walk, band, entry} to go on with, or {} when the walk is through or none is needed
--@include prelude
--@include record
--@include entries
local walk, band, after, most = ARGV[5], tonumber(ARGV[6]), ARGV[7], tonumber(ARGV[8])
local needed = call('HGET', META, 'unparking')
if not needed then return {} end
if walk == '' then walk, band, after = needed, 9, '-' end
local types = call('HGET', META, 'paused_types') or ';'
local rung, BELLS = 0, 64 -- a bell wakes one child, and there are not many more of them
while band >= 0 do
  local pending = grouped('XPENDING', STREAM .. band, GROUP, after == '-' and after or '(' .. after, '+', most, PARKED)
  for k = 1, #pending do
    local entry = pending[k][1]
    after = entry
    local fields = entry_fields(band, entry)
    local task_type = fields and envelope_type(fields[2])
    if not fields then
      lost(band, entry)
    elseif not task_type or not find(types, ';' .. task_type .. ';', 1, true) then
      shelve(band, entry, rung < BELLS)
      rung = rung + 1
    end
  end
  most = most - #pending
  if most <= 0 then return {walk, band, after} end
  band, after = band - 1, '-'
end
if needed == walk then call('HDEL', META, 'unparking') end -- else a later resumption needs a walk of its own
return {}
