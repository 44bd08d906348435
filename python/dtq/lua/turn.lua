-- The turn: settle a child's outcomes, then claim its next batch, in one round trip (spec §4, protocol 1-3, 5, 10, 13-20).
-- KEYS  the queue's keys (parts/prelude.lua)
-- ARGV  5 consumer  6 send number, 16 digits  7 packed: first claim number, want, most bytes, then how many outcomes, adopted entries,
--       held claims and heads follow, flags: 1 recover  2 beside: other claims of this child have not ended  4 yields (protocol 19)
--          shape: 1 records follow  2 plain: all are successes of one band whose live values, as claimed, have no tail but the mark of
--          adopt.lua
--       then per head: letter, band digit and amount in one, and how many outcomes in a row it stands for
--       then, of plain ones, their live values as claimed, joined by newlines, and the greatest of their entries
--       then in columns, for each outcome: ids; entries of plain ones, else live values as claimed; records
--       then per adopted entry: band, entry, id;  then the claim numbers the child still holds
--       letters: S succeeded (amount: retention ms, -1 for ever)  R retrying (delay ms)  F failed  D dead_lettered  C cancelled  L released
-- Returns  {'late'} for a stale copy, else {codes, now in ms, then per claim: entry, id, live value, band, envelope}
--       a plain first attempt comes without its live value: the child knows what it is (rust/claim.rs)
--       codes, one an outcome: d done  c ended cancelled instead  s stale (another claim holds the task)  g gone;
--       then a p when the queue is paused; else, while a task waits to be alone that this child has passed over, a w, or a y, if
--       the child is to yield: it claims nothing until the task is gone or nothing is under way
--@include prelude
local me, send = ARGV[5], ARGV[6]
-- room: bytes that this turn may still carry after its first task
local seq, want, room, outcomes, adopted, held, named, flags, shape = struct.unpack('<I8I4I4I4I4I4I4BB', ARGV[7])
local TRIM_FROM = 8 -- entries
local byte, COLON, SUCCEEDED, DASH, LINE_FEED = string.byte, 58, 83, 45, 10
local recovers, plain, has_records = flags % 2, shape >= 2, shape % 2 == 1
local HEADS = 8
local TOKENS = HEADS + 2 * named -- and the greatest entry
local IDS = plain and TOKENS + 2 or TOKENS
local ENTRIES = IDS + outcomes -- or, of those that are not plain, live values as claimed
local RECORDS = ENTRIES + outcomes
local ADOPTED = has_records and RECORDS + outcomes or RECORDS
local HELD = ADOPTED + 3 * adopted

local last = call('HGET', SENDS, me)
if last and last >= send then return {'late'} end
-- So that whoever looks for strays finds this consumer, and its send number, also where it never gets an entry.
if not last then redis.pcall('XGROUP', 'CREATECONSUMER', STREAM .. 0, GROUP, me) end
local facts = call('HMGET', META, 'paused', 'shelf', 'listeners', 'bands', 'paused_types')
local paused, shelf, listened, bands, paused_types = facts[1], facts[2] or '', is_future(facts[3]), facts[4] or '', facts[5]
local watched = listened or paused_types -- every claim is looked at: for its event, or for its type

-- The script is in two halves, and the functions of the second one are only made when it is reached: making closures
-- costs a call as much as all its commands (measured: 20 of 35 us). The first half does what nearly every turn is.
---------------------------------------------------------------- the common path: settle plain successes
local ids, tokens, heads, states -- one an outcome, of a batch that is settled one by one
local code, other = {}, {}
local ended = {} -- band -> entries acknowledged and not yet deleted
if outcomes > 0 then states = call('HMGET', LIVE, unpack(ARGV, IDS, ENTRIES - 1)) end
call('HSET', SENDS, me, send)
local settled = 0
-- Plain ones are settled as a whole where each live value is still the very one claimed: it is looked for at its place among
-- those, which makes no new string. A string costs Lua here eight instructions a byte (docs/decisions/0008).
local as_claimed = plain and not listened
if as_claimed then
  local claimed, at = ARGV[TOKENS], 1
  for i = 1, outcomes do
    local value = states[i]
    if not value or find(claimed, value, at, true) ~= at or (byte(claimed, at + #value) or LINE_FEED) ~= LINE_FEED then
      as_claimed = false
      break
    end
    at = at + #value + 1
  end
  as_claimed = as_claimed and at == #claimed + 2
end
if as_claimed then
  local band, offset, keeps = sub(ARGV[HEADS], 2, 2), 0, false
  for h = HEADS, TOKENS - 1, 2 do
    local retention, count = sub(ARGV[h], 3), tonumber(ARGV[h + 1])
    if retention ~= '0' then
      for i = offset, offset + count - 1 do
        if retention == '-1' then
          call('SET', RECORD .. ARGV[IDS + i], ARGV[RECORDS + i])
        else
          call('PSETEX', RECORD .. ARGV[IDS + i], retention, ARGV[RECORDS + i])
        end
      end
      call('LPUSH', RECENT .. 'succeeded', unpack(ARGV, IDS + offset, IDS + offset + count - 1))
      keeps = true
    end
    offset = offset + count
  end
  if keeps then call('LTRIM', RECENT .. 'succeeded', '0', RECENT_LAST) end
  call('HDEL', LIVE, unpack(ARGV, IDS, ENTRIES - 1))
  call('XACK', STREAM .. band, GROUP, unpack(ARGV, ENTRIES, RECORDS - 1))
  call('HINCRBY', META, 'succeeded', outcomes)
  settled = outcomes
  code[1] = string.rep('d', outcomes)
  ended[band] = {count = outcomes, greatest = ARGV[TOKENS + 1]}
elseif outcomes > 0 then
  ids, tokens, heads = {}, {}, {}
  if plain then
    for token in string.gmatch(ARGV[TOKENS], '[^\n]+') do tokens[#tokens + 1] = token end
  end
  local gone, kept, i, k = {}, {}, 0, 0
  for h = HEADS, TOKENS - 1, 2 do
    local head = ARGV[h]
    local success, band, retention = byte(head) == SUCCEEDED and not listened, sub(head, 2, 2), sub(head, 3)
    local list = ended[band] or {}
    ended[band] = list
    for _ = 1, tonumber(ARGV[h + 1]) do
      i = i + 1
      local id = ARGV[IDS + i - 1]
      local token = tokens[i] or ARGV[ENTRIES + i - 1]
      ids[i], tokens[i] = id, token
      -- plain: a success whose live value is still the very one claimed, with an empty tail or the mark of adopt.lua
      if success and states[i] == token and (byte(token, -1) == COLON or sub(token, -3) == ':w;') then
        list[#list + 1] = match(token, '^r:%d+:%d+:([^:]+)')
        if retention == '-1' then
          call('SET', RECORD .. id, ARGV[RECORDS + i - 1])
        elseif retention ~= '0' then
          call('PSETEX', RECORD .. id, retention, ARGV[RECORDS + i - 1])
        end
        settled = settled + 1
        gone[settled] = id
        if retention ~= '0' then
          k = k + 1
          kept[k] = id
        end
        code[i] = 'd'
      else
        heads[i] = head
        other[#other + 1] = i
      end
    end
  end
  if settled > 0 then
    call('HDEL', LIVE, unpack(gone))
    if k > 0 then
      call('LPUSH', RECENT .. 'succeeded', unpack(kept))
      call('LTRIM', RECENT .. 'succeeded', '0', RECENT_LAST)
    end
    for band, list in pairs(ended) do
      if #list > 0 then call('XACK', STREAM .. band, GROUP, unpack(list)) end
    end
    call('HINCRBY', META, 'succeeded', settled)
  end
end

local function is_before(entry, other_entry)
  -- of two times of the same length the smaller one sorts first; within one time the shorter, then the smaller number
  if #entry == #other_entry then return entry < other_entry end
  local dash = find(other_entry, '-', 1, true)
  if sub(entry, 1, dash) == sub(other_entry, 1, dash) then return #entry < #other_entry end
  return entry < other_entry and byte(entry, dash) == DASH
end
-- Deletes what was acknowledged above. Below the oldest pending entry everything was delivered and acknowledged: one trim
-- there costs a tenth of deleting entry by entry, each of which Redis looks for from the start of its node (protocol 20).
local function sweep()
  for band, list in pairs(ended) do
    local stream, count = STREAM .. band, list.count or #list
    local oldest = count >= TRIM_FROM and redis.pcall('XPENDING', stream, GROUP, '-', '+', 1)
    oldest = oldest and oldest[1] and oldest[1][1]
    if oldest and list.greatest and is_before(list.greatest, oldest) then
      call('XTRIM', stream, 'MINID', oldest)
    elseif count > 0 then
      local rest = {}
      for i = 1, count do
        local entry = list[i] or ARGV[ENTRIES + i - 1]
        if not (oldest and is_before(entry, oldest)) then rest[#rest + 1] = entry end
      end
      if #rest < count then call('XTRIM', stream, 'MINID', oldest) end
      if #rest > 0 then call('XDEL', stream, unpack(rest)) end
    end
  end
  ended = {}
end

---------------------------------------------------------------- the common path: claim plain entries
local now_text = integer(now)
local out, o, set, m, got, started, done = {'', now_text}, 2, {}, 0, 0, -settled, false -- started: more than ended
local format, infix, suffix = string.format, ':' .. me .. ':', ':' .. now_text .. ':'
local odd = {} -- what is not a first attempt without options: {band, entry, fields, live value}
-- Claims from one band's stream; answers whether to ask it again.
local function claim_stream(band)
  local asked, number = want - got, tonumber(band)
  local stream = STREAM .. band
  local reply = redis.pcall('XREADGROUP', 'GROUP', GROUP, me, 'COUNT', asked, 'STREAMS', stream, '>')
  if not reply then return false end
  if reply.err then
    if not find(reply.err, 'NOGROUP', 1, true) then
      sweep() -- a script's writes stand where it fails
      return error(reply)
    end
    call('XGROUP', 'CREATE', stream, GROUP, '0', 'MKSTREAM') -- the group was lost: always with id 0 (protocol 13)
    return true
  end
  local entries = reply[1][2]
  local read = {}
  for i = 1, #entries do read[i] = entries[i][2][1] end
  local values = call('HMGET', LIVE, unpack(read))
  for i = 1, #entries do
    local item = entries[i]
    local value, entry, fields = values[i], item[1], item[2]
    if value == 'q:1:0:' .. entry .. ':' and #fields == 2 and not watched and not done
      and (got == 0 or room >= #fields[2]) then
      local envelope = fields[2]
      local running = 'r:1:0:' .. entry .. infix .. format('%d', seq) .. suffix
      set[m + 1], set[m + 2] = read[i], running
      m = m + 2
      out[o + 1], out[o + 2], out[o + 3], out[o + 4] = entry, read[i], number, envelope
      o = o + 4
      got = got + 1
      started = started + 1
      seq = seq + 1
      room = room - #envelope
    else
      odd[#odd + 1] = {band, entry, fields, value}
    end
  end
  return #entries == asked and got < want and #odd == 0
end
local function write_claims()
  if m > 0 then call('HSET', LIVE, unpack(set)) end
  set, m = {}, 0
end
local function answer()
  write_claims()
  sweep()
  if started ~= 0 then call('HINCRBY', META, 'running', started) end
  out[1] = table.concat(code)
  if paused then out[1] = out[1] .. 'p' end
  return out
end
local common = #other == 0 and recovers == 0 and adopted == 0 and shelf == '' and not paused
if common and want > 0 then
  for place = 1, #bands do
    repeat until not claim_stream(sub(bands, place, place))
    if #odd > 0 or got >= want then break end
  end
end
if common and #odd == 0 then return answer() end

---------------------------------------------------------------- everything else: parts/settle.lua, then parts/claim.lua
write_claims() -- what follows reads the live values again
sweep()
--@include events
--@include record
--@include entries
--@include finish
--@include settle
--@include claim

admit_odd()
if recovers == 1 then recover() else adopt() end
if want > got and not paused and not done then
  for band = 9, 0, -1 do
    if shelf ~= '' and find(shelf, band, 1, true) then
      claim_shelf(band)
    end
    if not done and got < want and find(bands, band, 1, true) then
      local again
      repeat
        again = claim_stream(band)
        local any = #odd > 0
        admit_odd()
      until not (again or any) or done or got >= want
    end
    if done or got >= want then break end
  end
end
if bell then ring(bell) end
publish()
local reply = answer()
reply[1] = reply[1] .. hint
return reply
