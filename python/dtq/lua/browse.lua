-- A slice of a queue's tasks in one status, each as it stands at this instant. It only looks.
-- KEYS  the queue's keys (parts/prelude.lua)
-- ARGV  5 section: queued | running | pending | retrying | scheduled (both) | a status of ended tasks
--       6 most tasks to look at  7 most bytes  8 task type, '' for any  9 the place to go on behind, as the last slice gave it, or ''
-- Returns  {the place of the last one looked at ('' when there is no more), how many were looked at, 1 where the list of ended
--          tasks is full, so that older ones are known by id only, then per task: id, live value, envelope, record, due time}
-- A place names what was looked at last, never how many: tasks that come or go meanwhile move no other ones into or out of
-- the following slice.
--@include prelude
--@include record
local section, most, room, wanted, place = ARGV[5], tonumber(ARGV[6]), tonumber(ARGV[7]), ARGV[8], ARGV[9]
local READ = 20 -- so many are read at a time: envelopes may be large, and a slice ends by bytes too
local out, last, looked, full = {'', 0, 0}, '', 0, false

-- One more was looked at; answers whether there is room for another one. id: nil where it is not of this section.
local function look(at, id, live, envelope, record, due)
  last, looked = at, looked + 1
  room = room - #(envelope or '') - #(record or '')
  if id then
    local n = #out
    out[n + 1], out[n + 2], out[n + 3], out[n + 4], out[n + 5] = id, live, envelope, record, due
  end
  full = looked >= most or room <= 0
  return not full
end
local function of_type(envelope) return wanted == '' or envelope_type(envelope) == wanted end
local function look_at_entry(at, kind, entry, fields)
  local id, envelope = fields and fields[1] or '', fields and fields[2] or ''
  local value = id ~= '' and call('HGET', LIVE, id)
  local state = value and parse_live(value)
  if not state or state.kind ~= kind or state.entry ~= entry or not of_type(envelope) then return look(at, nil, nil, envelope) end
  return look(at, id, value, envelope, tail_has(state.tail, 'h') and call('GET', RECORD .. id) or '', '')
end
-- Queued: the newest entry first, over all bands.
local function numbers(entry)
  local time, number = match(entry, '^(%d+)-(%d+)$')
  return tonumber(time), tonumber(number)
end
local function walk_queued(bands)
  local from, from_band = match(place, '^(%S+) (%d)$')
  local ahead = {}
  local function refill(one)
    one.entries, one.at = call('XREVRANGE', STREAM .. one.band, one.start, '-', 'COUNT', READ), 1
    if #one.entries > 0 then one.start = '(' .. one.entries[#one.entries][1] end
  end
  local function head(one)
    if one.at > #one.entries and #one.entries > 0 then refill(one) end
    return one.entries[one.at]
  end
  for k = 1, #bands do
    local band = sub(bands, k, k)
    local start = not from and '+' or (band < from_band and from or '(' .. from)
    ahead[k] = {band = band, start = start}
    refill(ahead[k])
  end
  while true do
    local best, time, number
    for _, one in ipairs(ahead) do -- the highest band first: it goes first among equals
      local item = head(one)
      if item then
        local its_time, its_number = numbers(item[1])
        if not best or its_time > time or (its_time == time and its_number > number) then
          best, time, number = one, its_time, its_number
        end
      end
    end
    if not best then return end
    local item = best.entries[best.at]
    best.at = best.at + 1
    if not look_at_entry(item[1] .. ' ' .. best.band, 'q', item[1], item[2]) then return end
  end
end
-- Running: what the pending lists hold, band by band; what waits there for its turn, shelved or parked, is looked over.
local function walk_running(bands)
  local from_band, from = match(place, '^(%d) (%S+)$')
  for k = 1, #bands do
    local band = sub(bands, k, k)
    if not from or band <= from_band then
      local start = band == from_band and '(' .. from or '-'
      repeat
        local pending = redis.pcall('XPENDING', STREAM .. band, GROUP, start, '+', READ)
        if pending.err then pending = {} end
        for i = 1, #pending do
          local entry = pending[i][1]
          start = '(' .. entry
          local found = call('XRANGE', STREAM .. band, entry, entry)[1]
          if not look_at_entry(band .. ' ' .. entry, 'r', entry, found and found[2]) then return end
        end
      until #pending < READ
    end
  end
end
-- Pending and retrying: what is due next first, and within a millisecond by their bytes, as Redis sorts them.
local function sorts_before(a, b)
  for i = 1, math.min(#a, #b) do
    local x, y = string.byte(a, i), string.byte(b, i)
    if x ~= y then return x < y end
  end
  return #a < #b
end
local function walk_schedule()
  local due, behind = match(place, '^(%S+) (.+)$')
  local start = 0
  if due then -- the rank behind it, whether it stands or not
    start = call('ZCOUNT', SCHEDULE, '-inf', '(' .. due)
    local past = start + call('ZCOUNT', SCHEDULE, due, due)
    while start < past do
      local middle = math.floor((start + past) / 2)
      local id = call('ZRANGE', SCHEDULE, middle, middle)[1]
      if id == behind or sorts_before(id, behind) then start = middle + 1 else past = middle end
    end
  end
  local code = STATUS[section]
  while true do
    local found = call('ZRANGE', SCHEDULE, start, start + READ - 1, 'WITHSCORES')
    for i = 1, #found, 2 do
      local id, at = found[i], found[i + 1] .. ' ' .. found[i]
      local raw = call('GET', RECORD .. id)
      local record = read_record(raw)
      local status = record and record.status or 0
      local meant = (status == STATUS.pending or status == STATUS.retrying) and (not code or status == code)
        and of_type(record.envelope)
      if not look(at, meant and id or nil, '', '', raw or '', found[i + 1]) then return end
    end
    if #found < 2 * READ then return end
    start = start + READ
  end
end
-- Ended: the newest first. The place is the number in the list and the last ids, as others come in front and some are deleted.
local ANCHORS = 3
local function walk_ended()
  local list, code = RECENT .. section, STATUS[section]
  if call('LLEN', list) > tonumber(RECENT_LAST) then out[3] = 1 end
  local at, anchors = 0, {}
  local was, named = match(place, '^(%d+) (.+)$')
  if was then
    was = tonumber(was)
    local standing
    for id in string.gmatch(named, '%S+') do
      anchors[#anchors + 1] = id
      -- of several mentions the first that is no nearer than it was: pushes move it away, and a walk comes to its end
      for _, position in ipairs(standing and {} or call('LPOS', list, id, 'COUNT', 0)) do
        if not standing or standing < was then standing = position end
      end
    end
    -- where none of them stands some come twice, but none is left out
    at = standing and standing + 1 or math.max(0, was + 1 - ANCHORS)
  end
  local named_before
  -- Ids of dtq's own making are never used again. One given by a user may be, and then its older mention means the newer task.
  local function mentioned(id, position)
    if #id == 22 then return false end
    if not named_before then
      named_before = {}
      for k, other in ipairs(position > 0 and call('LRANGE', list, 0, position - 1) or {}) do named_before[other] = k end
    end
    local before = named_before[id]
    named_before[id] = before or position + 1
    return before and before <= position
  end
  while true do
    local ids = call('LRANGE', list, at, at + READ - 1)
    for i = 1, #ids do
      local id = ids[i]
      table.insert(anchors, 1, id)
      anchors[ANCHORS + 1] = nil
      local raw = not mentioned(id, at + i - 1) and call('HEXISTS', LIVE, id) == 0 and call('GET', RECORD .. id)
      local record = raw and read_record(raw)
      local meant = record and record.status == code and of_type(record.envelope)
      local here = integer(at + i - 1) .. ' ' .. table.concat(anchors, ' ')
      if not look(here, meant and id or nil, '', '', raw or '', '') then return end
    end
    if #ids < READ then return end
    at = at + READ
  end
end

if section == 'queued' then
  walk_queued(call('HGET', META, 'bands') or '')
elseif section == 'running' then
  walk_running(call('HGET', META, 'bands') or '')
elseif section == 'pending' or section == 'retrying' or section == 'scheduled' then
  walk_schedule()
else
  walk_ended()
end
out[1], out[2] = full and last or '', looked
return out
