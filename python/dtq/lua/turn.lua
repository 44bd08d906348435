-- The turn: settle a child's outcomes, then claim its next batch, in one round trip (spec §4, protocol 1-3, 5, 10, 13-19).
-- KEYS  the queue's keys (parts/prelude.lua)
-- ARGV  5 consumer  6 send number, 16 digits  7 packed: first claim number, want, most bytes, then how many outcomes, adopted entries,
--       held claims and heads follow, flags: 1 recover  2 beside: other claims of this child have not ended  4 yields (protocol 19)
--       then per head: letter, band digit and amount in one, and how many outcomes in a row it stands for
--       then per outcome: id, live value as claimed, record
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
local seq, want, room, outcomes, adopted, held, named, flags = struct.unpack('<I8I4I4I4I4I4I4B', ARGV[7])
local TRIM_FROM = 8 -- entries
local byte, COLON, SUCCEEDED, DASH = string.byte, 58, 83, 45
local recovers = flags % 2
local HEADS = 8
local OUTCOMES = HEADS + 2 * named
local ADOPTED = OUTCOMES + 3 * outcomes
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
local ids, heads, states, code, other = {}, {}, {}, {}, {}
local ended = {} -- band -> entries acknowledged and not yet deleted
if outcomes > 0 then
  for i = 1, outcomes do ids[i] = ARGV[OUTCOMES + 3 * (i - 1)] end
  states = call('HMGET', LIVE, unpack(ids))
end
call('HSET', SENDS, me, send)
local gone, kept, i, g, k = {}, {}, 0, 0, 0
for h = HEADS, OUTCOMES - 1, 2 do
  local head = ARGV[h]
  local success, band, retention = byte(head) == SUCCEEDED and not listened, sub(head, 2, 2), sub(head, 3)
  local list = ended[band] or {}
  ended[band] = list
  for _ = 1, tonumber(ARGV[h + 1]) do
    i = i + 1
    local at = OUTCOMES + 3 * (i - 1)
    local token = ARGV[at + 1]
    -- plain: a success whose live value is still the very one claimed, with an empty tail or the mark of adopt.lua
    if success and states[i] == token and (byte(token, -1) == COLON or sub(token, -3) == ':w;') then
      local id = ids[i]
      local colon = find(token, ':', 7, true) -- behind `r:1:0:<entry>`; where it stands nearer, other numbers come first
      list[#list + 1] = colon > 12 and sub(token, 7, colon - 1) or match(token, '^r:%d+:%d+:([^:]+)')
      if retention == '-1' then
        call('SET', RECORD .. id, ARGV[at + 2])
      elseif retention ~= '0' then
        call('SET', RECORD .. id, ARGV[at + 2], 'PX', retention)
      end
      g = g + 1
      gone[g] = id
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
if g > 0 then
  call('HDEL', LIVE, unpack(gone))
  if k > 0 then
    call('LPUSH', RECENT .. 'succeeded', unpack(kept))
    call('LTRIM', RECENT .. 'succeeded', '0', RECENT_LAST)
  end
  for band, list in pairs(ended) do
    if #list > 0 then call('XACK', STREAM .. band, GROUP, unpack(list)) end
  end
  call('HINCRBY', META, 'succeeded', g)
end

-- Deletes what was acknowledged above. Below the oldest pending entry everything was delivered and acknowledged: one trim
-- there costs a tenth of deleting entry by entry, each of which Redis looks for from the start of its node (protocol 9).
local function sweep()
  for band, list in pairs(ended) do
    local stream = STREAM .. band
    local oldest = #list >= TRIM_FROM and redis.pcall('XPENDING', stream, GROUP, '-', '+', 1)
    oldest = oldest and oldest[1] and oldest[1][1]
    local rest = oldest and {} or list
    if oldest then
      local dash = find(oldest, '-', 1, true)
      local time = sub(oldest, 1, dash)
      for i = 1, #list do
        local entry = list[i]
        -- of two times of the same length the smaller one sorts first; within one time the shorter, then the smaller number
        local before
        if #entry == #oldest then
          before = entry < oldest
        elseif sub(entry, 1, dash) == time then
          before = #entry < #oldest
        else
          before = entry < oldest and byte(entry, dash) == DASH
        end
        if not before then rest[#rest + 1] = entry end
      end
      if #rest < #list then call('XTRIM', stream, 'MINID', oldest) end
    end
    if #rest > 0 then call('XDEL', stream, unpack(rest)) end
  end
  ended = {}
end

---------------------------------------------------------------- the common path: claim plain entries
local now_text = integer(now)
local out, o, set, m, got, started, done = {'', now_text}, 2, {}, 0, 0, -g, false -- started: more than ended
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
    local value, entry, fields = values[i], entries[i][1], entries[i][2]
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
