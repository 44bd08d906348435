-- Adopt the one entry that the blocking read right before this call got: the turn of a child that waits, cut down to
-- what a waiting task waits for. Both are sent at once, so that the child starts the task after one round trip.
-- KEYS  1 live hash  2 meta hash  3 sends  4 prefix of the streams
-- ARGV  1 consumer  2 send number, 16 digits  3 claim number
-- Returns  {'', now in ms, entry, id, live value, band, envelope}, or {''} when nothing was done: a stale copy, nothing read, or
--          anything but one plain first attempt; then the child's next turn recovers
-- The mark `w` in the live value says that the child may have been gone for long when this ran: a death charges such a
-- claim only after it was claimed alone by a turn (protocol 19).
local call = redis.call
local me, send = ARGV[1], ARGV[2]
local last = call('HGET', KEYS[3], me)
if last and last >= send then return {''} end
local facts = call('HMGET', KEYS[2], 'paused', 'shelf', 'listeners', 'bands', 'paused_types')
if facts[1] or (facts[2] or '') ~= '' or facts[3] or not facts[4] or facts[5] then return {''} end
local found, band
for digit in string.gmatch(facts[4], '%d') do
  -- the own pending list with its entries; the child holds nothing else while it waits
  local reply = redis.pcall('XREADGROUP', 'GROUP', 'workers', me, 'COUNT', 2, 'STREAMS', KEYS[4] .. digit, '0')
  if reply.err then return {''} end
  local entries = reply[1][2]
  if #entries > 0 then
    if found or #entries > 1 then return {''} end
    found, band = entries[1], digit
  end
end
if not found or not found[2] or #found[2] ~= 2 then return {''} end
local entry, id = found[1], found[2][1]
if call('HGET', KEYS[1], id) ~= 'q:1:0:' .. entry .. ':' then return {''} end
local clock = call('TIME')
local now = clock[1] .. string.format('%03d', math.floor(clock[2] / 1000))
local value = 'r:1:0:' .. entry .. ':' .. me .. ':' .. ARGV[3] .. ':' .. now .. ':w;'
call('HSET', KEYS[1], id, value)
call('HSET', KEYS[3], me, send)
call('HINCRBY', KEYS[2], 'running', 1)
return {'', now, entry, id, value, tonumber(band), found[2][2]}
