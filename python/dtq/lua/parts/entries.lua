-- Stream entries: finding, acknowledging, shelving; the group is made anew (id 0) where it is missing.
local function grouped(...)
  local reply = redis.pcall(...)
  if type(reply) == 'table' and reply.err and find(reply.err, 'NOGROUP', 1, true) then
    local arguments = {...}
    local stream = arguments[2]
    if arguments[1] == 'XREADGROUP' then
      for i = 1, #arguments do if arguments[i] == 'STREAMS' then stream = arguments[i + 1] end end
    end
    call('XGROUP', 'CREATE', stream, GROUP, '0', 'MKSTREAM')
    return call(...)
  end
  if type(reply) == 'table' and reply.err then return error(reply) end
  return reply
end
local function entry_fields(band, entry)
  local reply = call('XRANGE', STREAM .. band, entry, entry)
  return reply[1] and reply[1][2]
end
-- The band of a task's entry and its envelope (the live value does not name the band: rare paths look in all ten).
local function locate(id, entry)
  for band = 9, 0, -1 do
    local fields = entry_fields(band, entry)
    if fields and fields[1] == id then return band, fields[2] end
  end
  return nil, nil
end
local function acknowledge(band, entry)
  call('XACK', STREAM .. band, GROUP, entry)
  call('XDEL', STREAM .. band, entry)
end
local function ring(band) call('XADD', STREAM .. band, '*', '', '') end
-- The meta field 'bands' names the bands that were ever used, the highest first, and with them the home band: a turn asks
-- no others (1.5 us each), and readers wait on no others. So the first use of a band rings at home, once for each child that
-- may stand in a read: it wakes, looks which bands are in use now, and waits on the new one as well (protocol 21).
local HOME, MOST_BELLS = '5', 64
-- One bell for each child that may stand in a blocking read: every reader waits on the home band.
local function ring_children(most)
  local consumers = redis.pcall('XINFO', 'CONSUMERS', STREAM .. 0, GROUP)
  for _ = 1, math.min(consumers.err and 0 or #consumers, most) do ring(HOME) end
end
local function use_band(band)
  band = tostring(band)
  local bands = call('HGET', META, 'bands') or ''
  if find(bands, band, 1, true) then return end
  local digits = {band}
  if band ~= HOME and not find(bands, HOME, 1, true) then digits[2] = HOME end
  for digit in string.gmatch(bands, '%d') do digits[#digits + 1] = digit end
  table.sort(digits, function(a, b) return a > b end)
  call('HSET', META, 'bands', table.concat(digits))
  if band ~= HOME then ring_children(MOST_BELLS) end
end
-- The meta field 'shelf' names the bands whose shelf may hold something: set with the entry, cleared when seen empty.
local function mark_shelf(band)
  local bands = call('HGET', META, 'shelf') or ''
  if not find(bands, band, 1, true) then call('HSET', META, 'shelf', bands .. band) end
end
-- Puts a task on the schedule. Where it falls due before all others the leader is told, which sleeps until the first does.
-- It may miss that, and looks every now and then.
local function schedule(id, due)
  call('ZADD', SCHEDULE, integer(due), id)
  if call('ZRANK', SCHEDULE, id) == 0 then redis.pcall('PUBLISH', SCHEDULE, '') end
end
local function shelve(band, entry, bell)
  grouped('XCLAIM', STREAM .. band, GROUP, SHELF, 0, entry, 'JUSTID')
  mark_shelf(band)
  if bell then ring(band) end
end
local function owned(band, entry, consumer)
  return #grouped('XPENDING', STREAM .. band, GROUP, entry, entry, 1, consumer) > 0
end
-- An entry that is gone: its pending place is cleared, and the task that names it is looked for outside (protocol 4).
local function lost(band, entry)
  call('XACK', STREAM .. band, GROUP, entry)
  call('SADD', LOST, entry)
end
