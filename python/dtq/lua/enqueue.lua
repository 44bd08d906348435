-- Accept a chunk of tasks of one queue: the only birthplace of a task (spec §1, §3).
-- KEYS  the queue's keys (parts/prelude.lua)
-- ARGV  5 depth cap (0 off)  6 cap of scheduled tasks (0 off)  7 repeat: 1 when this chunk may have been applied before
--       8 places; then per place: itself, and how many tasks in a row it stands for;  then per task: id, envelope
--       place = band digit, then options, each ending ';':
--       t<ttl ms> d<deadline ms> w<delay ms> a<run at ms> u<fingerprint>,<ttl ms> i<key>,<fingerprint>,<ttl ms> b<batch> g (id given by the user)
--       k (where the lock is held its holder answers: no refusal)
-- Returns  {codes, detail...}: one code a task, a detail for each of u, i, d in order.
--       a accepted  e id taken  f queue full  p schedule full  u unique conflict (holder)  i idempotency in progress (holder)
--       r idempotency key reused  d duplicate of an ended task (holder and status)
--@include prelude
local depth_cap, scheduled_cap, again = tonumber(ARGV[5]), tonumber(ARGV[6]), ARGV[7] == '1'
local PLACES = 9
local TASKS = PLACES + 2 * tonumber(ARGV[8])
local n = (#ARGV - TASKS + 1) / 2
local ids = {}
local records = {}
for i = 1, n do
  ids[i] = ARGV[TASKS + 2 * (i - 1)]
  records[i] = RECORD .. ids[i]
end
-- A late copy of a chunk may arrive when its tasks have ended: then their records stand (protocol 11).
local recorded = call('EXISTS', unpack(records)) > 0
local have = call('HMGET', LIVE, unpack(ids))
local facts = call('HMGET', META, 'listeners', 'bands')
local listened, bands = is_future(facts[1]), facts[2] or ''
local room = depth_cap > 0 and depth_cap - call('HLEN', LIVE) or math.huge
local codes, details, set, m, odd, places = {}, {}, {}, 0, {}, {}

-- The common path: a new id, a known band, no options. (Closures below are only made when they are needed, as in turn.lua.)
local i = 0
for p = PLACES, TASKS - 1, 2 do
  local place = ARGV[p]
  local stream, plain = STREAM .. place, #place == 1 and find(bands, place, 1, true) and not (facts[1] or again or recorded)
  for _ = 1, tonumber(ARGV[p + 1]) do
    i = i + 1
    local id = ids[i]
    if not plain or have[i] then
      odd[#odd + 1] = i
      places[i] = place
    elseif room <= 0 then
      codes[i] = 'f'
    else
      local entry = call('XADD', stream, '*', id, ARGV[TASKS + 2 * i - 1])
      set[m + 1], set[m + 2] = id, 'q:1:0:' .. entry .. ':'
      m = m + 2
      room = room - 1
      codes[i] = 'a'
    end
  end
end
if m > 0 then
  call('HSET', LIVE, unpack(set))
  call('HINCRBY', META, 'submitted', m / 2)
end
-- Refusals are counted by reason (spec §12), once a call.
local full = i - #odd - m / 2
if full > 0 then call('HINCRBY', META, 'rejected:full', full) end
if #odd == 0 then return {table.concat(codes)} end

---------------------------------------------------------------- everything else
--@include events
--@include record
--@include entries
--@include finish
if facts[1] and not listened then call('HDEL', META, 'listeners') end
local scheduled_room = scheduled_cap > 0 and scheduled_cap - call('ZCARD', SCHEDULE) or math.huge
local born = {} -- ids given by users may come twice in one chunk

local function enter(id, envelope, band, tail)
  use_band(band)
  local entry = call('XADD', STREAM .. band, '*', id, envelope)
  call('HSET', LIVE, id, 'q:1:0:' .. entry .. ':' .. tail)
  call('HINCRBY', META, 'submitted', 1)
  room = room - 1
  emit('TASK_QUEUED', id, 1, nil, envelope_type(envelope))
  return 'a'
end
-- Is there a task with this id? Answers nil, 'same' (this very envelope: a repeat) or 'other'.
local function existing(id, live, envelope)
  if born[id] then return born[id] == envelope and 'same' or 'other' end
  local stored
  if live then
    local _
    _, stored = locate(id, parse_live(live).entry)
  else
    local record = call('GET', RECORD .. id)
    if not record then return nil end
    record = read_record(record)
    stored = record and record.envelope
  end
  return stored == envelope and 'same' or 'other'
end
local function options_of(place)
  local options = {}
  for letter, value in string.gmatch(sub(place, 2), '(%a)([^;]*);') do options[letter] = value end
  return options
end
-- Answers code, detail when the idempotency key settles the matter, else nil.
local function replay(id, option)
  local key, fingerprint = match(option, '^([^,]*),([^,]*),')
  local held = call('GET', IDEMPOTENCY .. key)
  if not held then return nil end
  local state, first_fingerprint, holder, status = match(held, '^([^ ]*) ([^ ]*) ([^ ]*) ?(.*)$')
  if holder == id then
    if state == 'processing' then return nil end -- and this very task is gone
    if again then return 'a' end -- it has ended and left no record: this is a repeat of what was accepted (protocol 11)
  end
  if first_fingerprint ~= fingerprint then return 'r' end
  if state ~= 'processing' then return 'd', holder .. ' ' .. status end
  if born[holder] or call('HEXISTS', LIVE, holder) == 1 or call('EXISTS', RECORD .. holder) == 1 then return 'i', holder end
  return nil -- processing, but its task is gone: acquired anew
end
local function accept(id, envelope, place, live)
  local options = options_of(place)
  local band = sub(place, 1, 1)
  if live or born[id] or options.g or again or recorded then
    local found = existing(id, live, envelope)
    if found then return (found == 'same' or not options.g) and 'a' or 'e' end
  end
  if options.i then
    local code, detail = replay(id, options.i)
    if code then return code, detail end
  end
  local fingerprint, unique_ttl
  if options.u then
    fingerprint, unique_ttl = match(options.u, '^([^,]*),(%d+)$')
    local holder = call('GET', UNIQUE .. fingerprint)
    if holder and holder ~= id then return 'u', holder, options.k end
  end
  local due = tonumber(options.a or 0)
  if options.w then due = now + tonumber(options.w) end
  local later = due > now
  if later and scheduled_room <= 0 then return 'p' end
  if not later and room <= 0 then return 'f' end
  -- every check is done: from here on only writes
  local tail = ''
  if options.t then tail = tail .. 'x' .. integer(now + tonumber(options.t)) .. ';' end
  if options.d then tail = tail .. 'd' .. options.d .. ';' end
  if options.u then
    tail = tail .. 'u' .. fingerprint .. ';'
    call('SET', UNIQUE .. fingerprint, id, 'PX', unique_ttl)
  end
  if options.i then
    local key, print, ttl = match(options.i, '^([^,]*),([^,]*),(%d+)$')
    tail = tail .. 'i' .. key .. ';'
    call('SET', IDEMPOTENCY .. key, 'processing ' .. print .. ' ' .. id, 'PX', ttl)
  end
  if options.b then tail = tail .. 'b' .. options.b .. ';' end
  born[id] = envelope
  if not later then return enter(id, envelope, band, tail) end
  local state = {attempt = 1, released = 0}
  local times = {created = now, started = 0, ended = 0}
  call('SET', RECORD .. id, pack_record(1, state, times, '', 'p:1:0::' .. tail, '{}', envelope, ''))
  schedule(id, due)
  call('HINCRBY', META, 'submitted', 1)
  scheduled_room = scheduled_room - 1
  return 'a'
end

local REASONS = {e = 'conflict', f = 'full', p = 'full', u = 'unique', i = 'idempotency', r = 'idempotency'}
local refused = {}
for _, i in ipairs(odd) do
  local code, detail, wanted = accept(ids[i], ARGV[TASKS + 2 * i - 1], places[i], have[i])
  codes[i] = code
  if detail then details[#details + 1] = detail end
  local reason = not wanted and REASONS[code]
  if reason then refused[reason] = (refused[reason] or 0) + 1 end
end
for reason, count in pairs(refused) do call('HINCRBY', META, 'rejected:' .. reason, count) end
publish()
return {table.concat(codes), unpack(details)}
