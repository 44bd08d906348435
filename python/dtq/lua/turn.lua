-- The turn: settle a child's outcomes, then claim its next batch, in one round trip (spec §4, protocol 1-3, 5, 10, 13-19).
-- KEYS  the queue's keys (parts/prelude.lua)
-- ARGV  5 consumer  6 send number  7 first claim number  8 want  9 most bytes  10 recover (0/1)  11 outcomes  12 adopted entries  13 held entries
--       then per outcome: id, live value as claimed, head (letter, band digit, amount), record
--       then per adopted entry: band, entry, id;  then the entries the child still holds
--       letters: S succeeded (amount: retention ms, -1 for ever)  R retrying (delay ms)  F failed  D dead_lettered  C cancelled  L released
-- Returns  {'late'} for a stale copy, else {codes, then per claim: entry, id, live value, band, envelope}
--       codes, one an outcome: d done  c ended cancelled instead  s stale (another claim holds the task)  g gone
--@include prelude
local me, send, seq, want = ARGV[5], tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8])
local room = tonumber(ARGV[9]) -- bytes this turn may still carry after its first task
local outcomes, adopted, held = tonumber(ARGV[11]), tonumber(ARGV[12]), tonumber(ARGV[13])
local OUTCOMES = 14
local ADOPTED = OUTCOMES + 4 * outcomes
local HELD = ADOPTED + 3 * adopted

local last = call('HGET', SENDS, me)
if last and tonumber(last) >= send then return {'late'} end
-- So that whoever looks for strays finds this consumer, and its send number, also where it never gets an entry.
if not last then redis.pcall('XGROUP', 'CREATECONSUMER', KEYS[STREAMS], GROUP, me) end
local facts = call('HMGET', META, 'paused', 'shelf', 'listeners', 'bands')
local paused, shelf, listened, bands = facts[1], facts[2] or '', is_future(facts[3]), facts[4] or ''

-- The file is in two halves, and the functions of the second one are only made when it is reached: making closures
-- costs a call as much as all its commands (measured: 20 of 35 us). The first half does what nearly every turn is.
---------------------------------------------------------------- the common path: settle plain successes
local ids, states, code, plain, other = {}, {}, {}, {}, {}
if outcomes > 0 then
  for i = 1, outcomes do ids[i] = ARGV[OUTCOMES + 4 * (i - 1)] end
  states = call('HMGET', LIVE, unpack(ids))
  for i = 1, outcomes do
    local token = ARGV[OUTCOMES + 4 * i - 3]
    -- plain: a success whose live value is still the very one claimed, with an empty tail or the mark of adopt.lua
    if states[i] == token and not listened and (sub(token, -1) == ':' or sub(token, -3) == ':w;')
      and sub(ARGV[OUTCOMES + 4 * i - 2], 1, 1) == 'S' then
      plain[#plain + 1] = i
      code[i] = 'd'
    else
      other[#other + 1] = i
    end
  end
end
call('HSET', SENDS, me, send)
if #plain > 0 then
  local ended, kept, entries = {}, {}, {}
  for k = 1, #plain do
    local i = plain[k]
    local at = OUTCOMES + 4 * (i - 1)
    local head, id = ARGV[at + 2], ids[i]
    local band, retention = sub(head, 2, 2), sub(head, 3)
    ended[k] = id
    local list = entries[band]
    if not list then
      list = {}
      entries[band] = list
    end
    list[#list + 1] = match(ARGV[at + 1], '^r:%d+:%d+:([^:]+)')
    if retention ~= '0' then
      if retention == '-1' then
        call('SET', RECORD .. id, ARGV[at + 3])
      else
        call('SET', RECORD .. id, ARGV[at + 3], 'PX', retention)
      end
      kept[#kept + 1] = id
    end
  end
  call('HDEL', LIVE, unpack(ended))
  if #kept > 0 then
    call('LPUSH', RECENT.succeeded, unpack(kept))
    call('LTRIM', RECENT.succeeded, 0, RECENT_MAX - 1)
  end
  for band, list in pairs(entries) do
    call('XACK', KEYS[STREAMS + band], GROUP, unpack(list))
    call('XDEL', KEYS[STREAMS + band], unpack(list))
  end
  call('HINCRBY', META, 'succeeded', #plain)
  call('HINCRBY', META, 'running', -#plain)
end

---------------------------------------------------------------- the common path: claim plain entries
local out, o, set, m, got, started, done = {''}, 1, {}, 0, 0, 0, false
local infix, suffix = ':' .. me .. ':', ':' .. integer(now) .. ':'
local odd = {} -- what is not a first attempt without options: {band, entry, fields, live value}
-- Claims from one band's stream; answers whether to ask it again.
local function claim_stream(band)
  local asked = want - got
  local stream = KEYS[STREAMS + band]
  local reply = redis.pcall('XREADGROUP', 'GROUP', GROUP, me, 'COUNT', asked, 'STREAMS', stream, '>')
  if not reply then return false end
  if reply.err then
    if not find(reply.err, 'NOGROUP', 1, true) then return error(reply) end
    call('XGROUP', 'CREATE', stream, GROUP, '0', 'MKSTREAM') -- the group was lost: always with id 0 (protocol 13)
    return true
  end
  local entries = reply[1][2]
  local read = {}
  for i = 1, #entries do read[i] = entries[i][2][1] end
  local values = call('HMGET', LIVE, unpack(read))
  for i = 1, #entries do
    local value, entry, fields = values[i], entries[i][1], entries[i][2]
    if value == 'q:1:0:' .. entry .. ':' and #fields == 2 and not listened and not done
      and (got == 0 or room >= #fields[2]) then
      local envelope = fields[2]
      local running = 'r:1:0:' .. entry .. infix .. integer(seq) .. suffix
      set[m + 1], set[m + 2] = read[i], running
      m = m + 2
      out[o + 1], out[o + 2], out[o + 3], out[o + 4], out[o + 5] = entry, read[i], running, band, envelope
      o = o + 5
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
  if started > 0 then call('HINCRBY', META, 'running', started) end
  out[1] = table.concat(code)
  return out
end
local common = #other == 0 and ARGV[10] == '0' and adopted == 0 and shelf == '' and not paused
if common and want > 0 then
  for band = 9, 0, -1 do
    if find(bands, band, 1, true) then
      repeat until not claim_stream(band)
      if #odd > 0 or got >= want then break end
    end
  end
end
if common and #odd == 0 then return answer() end

---------------------------------------------------------------- everything else
write_claims() -- what follows reads the live values again
--@include events
--@include record
--@include entries
--@include finish
-- Without a live value only the record can tell whether this very claim wrote it (protocol 17).
local function code_without_live(id, token)
  local record = read_record(call('GET', RECORD .. id))
  if not record then return 'g' end
  if record.token == token or record.token == token .. 'c' then return 'd' end
  return 's'
end
-- Brings the created time and the earlier history of a retried task into its new record.
local function with_history(id, tail, record)
  local old = history_of(id, tail)
  if not old then return record end
  local own = read_record(record)
  return sub(record, 1, 6) .. sub(old.raw, 7, 14) .. sub(record, 15, own.history_at - 1) .. old.history .. own.history
end
-- Only for events; before the entry is deleted.
local function type_of_entry(band, entry)
  local fields = entry_fields(band, entry)
  return fields and envelope_type(fields[2])
end
local function settle_retrying(id, state, band, record, delay)
  local task_type = listened and type_of_entry(band, state.entry)
  record = with_history(id, state.tail, record)
  call('SET', RECORD .. id, record)
  call('ZADD', SCHEDULE, integer(now + delay), id)
  call('HDEL', LIVE, id)
  call('HINCRBY', META, 'running', -1)
  call('HINCRBY', META, 'retried', 1)
  call('HINCRBY', META, 'retrying', 1)
  acknowledge(band, state.entry)
  emit('TASK_RETRY_SCHEDULED', id, state.attempt, worker_of(me), task_type)
end
local function settle_released(id, state, band, record)
  local tail = remember_attempt(id, state, read_record(record).history)
  call('HSET', LIVE, id, queued_value(state.attempt + 1, state.released + 1, state.entry, tail_drop(tail, 'w')))
  call('HINCRBY', META, 'running', -1)
  call('HINCRBY', META, 'released', 1)
  shelve(band, state.entry, true)
  emit('TASK_RELEASED', id, state.attempt, worker_of(me), listened and type_of_entry(band, state.entry))
end
local ENDS = {S = 'succeeded', F = 'failed', D = 'dead_lettered', C = 'cancelled'}
local function settle_one(id, value, letter, band, amount, record)
  local state = parse_live(value)
  if cancel_requested(state.tail) then
    local fields = entry_fields(band, state.entry)
    finish_here(id, 'cancelled', state, value, {cause = 'cancel requested', worker_id = worker_of(me)}, fields and fields[2],
      history_of(id, state.tail), band)
    return 'c'
  end
  if letter == 'R' then
    settle_retrying(id, state, band, record, amount)
  elseif letter == 'L' then
    settle_released(id, state, band, record)
  else
    local retention = amount < 0 and FOREVER or amount
    local status = ENDS[letter]
    record = record ~= '' and with_history(id, state.tail, record) or record
    if status ~= 'succeeded' then retention = retention_of(status, read_record(record).envelope) end
    finish(id, status, state, record, retention, band, listened and type_of_entry(band, state.entry))
  end
  return 'd'
end

-- Every fence of these is checked before the first of their writes.
for k = 1, #other do
  local i = other[k]
  local at = OUTCOMES + 4 * (i - 1)
  local token, state = ARGV[at + 1], states[i]
  if state == token or state == token .. 'c' then
    code[i] = ''
  elseif state then
    code[i] = 's'
  else
    code[i] = code_without_live(ids[i], token)
  end
end
for k = 1, #other do
  local i = other[k]
  if code[i] == '' then
    local at = OUTCOMES + 4 * (i - 1)
    local head = ARGV[at + 2]
    code[i] = settle_one(ids[i], states[i], sub(head, 1, 1), sub(head, 2, 2), tonumber(sub(head, 3)), ARGV[at + 3])
  end
end

local function take(id, value, entry, band, envelope)
  set[m + 1], set[m + 2] = id, value
  m = m + 2
  out[o + 1], out[o + 2], out[o + 3], out[o + 4], out[o + 5] = entry, id, value, band, envelope
  o = o + 5
  got = got + 1
  seq = seq + 1
  room = room - #envelope
end
local function running_value(attempt, released, entry, tail)
  tail = tail_drop(tail, 'w') -- the mark of adopt.lua
  return 'r:' .. attempt .. ':' .. released .. ':' .. entry .. ':' .. me .. ':' .. integer(seq) .. ':' .. integer(now) .. ':' .. tail
end
local function absorb(band, entry)
  acknowledge(band, entry)
  call('HINCRBY', META, 'absorbed', 1)
end
-- Puts an entry of the own pending list on the shelf, unless its task runs: read as new all the same, because the group
-- was lost and made anew, it goes to its owner's pending list (protocol 13). With mark `m` no owner waits for it.
local function set_aside(band, entry, value, bell)
  local state = value and parse_live(value)
  if not state or state.entry ~= entry or state.kind == 'q' or tail_has(state.tail, 'm') then
    shelve(band, entry, bell)
  elseif state.consumer ~= me then
    grouped('XCLAIM', KEYS[STREAMS + band], GROUP, state.consumer, 0, entry, 'JUSTID')
  end
end
-- An entry that is no task of ours goes to the dead letters as raw bytes; one whose task ended is only acked.
local function discard_stray(band, entry, fields)
  local id = fields[1]
  if call('EXISTS', RECORD .. id) == 1 then
    absorb(band, entry)
    emit('TASK_DUPLICATE_ABSORBED', id, 0, worker_of(me))
  else
    call('XADD', DEAD, '*', '', cmsgpack.pack(fields))
    if DEAD_MAX > 0 then call('XTRIM', DEAD, 'MAXLEN', '~', DEAD_MAX) end
    call('HINCRBY', META, 'strays', 1)
    acknowledge(band, entry)
  end
end
-- Dead-letters (or fails) a task whose charged attempts are used up by deaths, or whose deadline passed while it was lost.
local function end_redelivery(id, state, value, band, envelope, why)
  local old = history_of(id, state.tail)
  local cause
  for line in string.gmatch(old and old.history or '', '[^\n]+') do
    local ok, attempt = pcall(cjson.decode, line)
    cause = ok and attempt.cause or cause
  end
  local _, _, _, off = envelope_head(envelope)
  finish_here(id, off and 'failed' or 'dead_lettered', state, value,
    {cause = why or cause, error_class = 'WorkerLost', error = 'attempt ' .. state.attempt .. ' ended by: ' .. (why or cause or 'unknown'),
     worker_id = worker_of(state.consumer)}, envelope, old, band)
end
-- Claims one entry unless its state forbids it. `mine`: the entry is in this consumer's own pending list.
-- Answers false when the entry must be claimed alone and this turn already has others.
local function admit(band, entry, fields, value, mine)
  local id, envelope = fields[1], fields[2]
  if id == '' then
    acknowledge(band, entry)
    return true
  end
  local state = value and parse_live(value)
  if not state then
    discard_stray(band, entry, fields)
    return true
  end
  if state.entry ~= entry then
    absorb(band, entry)
    emit('TASK_DUPLICATE_ABSORBED', id, state.attempt, worker_of(me))
    return true
  end
  if state.kind == 'r' and mine then
    set_aside(band, entry, value, true)
    return true
  end
  local tail = tail_drop(state.tail, 'm')
  if cancel_requested(tail) then
    finish_here(id, 'cancelled', state, value, {cause = 'cancel requested'}, envelope, history_of(id, tail), band)
    return true
  end
  if state.kind == 'q' then
    local why = overdue(tail)
    if why then
      finish_here(id, 'expired', state, value, {cause = why}, envelope, history_of(id, tail), band)
      return true
    end
  else
    local deadline = tail_field(tail, 'd')
    if deadline and now >= tonumber(deadline) then
      end_redelivery(id, state, value, band, envelope, 'deadline')
      return true
    end
    local _, attempts = envelope_head(envelope)
    if state.attempt - state.released >= (attempts or 1) then
      end_redelivery(id, state, value, band, envelope)
      return true
    end
  end
  local alone = state.kind == 'r' or tail_has(tail, 's')
  if done or (alone and got > 0) then
    if mine then shelve(band, entry, true) end
    return false
  end
  if not mine then grouped('XCLAIM', KEYS[STREAMS + band], GROUP, me, 0, entry, 'JUSTID') end
  local attempt = state.attempt
  if state.kind == 'r' then attempt = attempt + 1 else started = started + 1 end
  take(id, running_value(attempt, state.released, entry, tail), entry, band, envelope)
  if listened then emit('TASK_STARTED', id, attempt, worker_of(me), envelope_type(envelope)) end
  if alone then done = true end
  return true
end

-- After a lost reply: everything in the own pending list that the child does not hold, with new claim numbers (protocol 2).
local function recover()
  local holds = {}
  for i = 0, held - 1 do holds[ARGV[HELD + i]] = true end
  for i = 2, #out, 5 do holds[out[i]] = true end
  for band = 9, 0, -1 do
    local from = '-'
    repeat
      local pending = grouped('XPENDING', KEYS[STREAMS + band], GROUP, from, '+', 200, me)
      for k = 1, #pending do
        local entry = pending[k][1]
        from = '(' .. entry
        if not holds[entry] then
          local fields = entry_fields(band, entry)
          local value = fields and call('HGET', LIVE, fields[1])
          local state = value and parse_live(value)
          if not fields then
            lost(band, entry)
          elseif state and state.entry == entry and state.kind == 'r' and state.consumer == me
            and not tail_has(state.tail, 'm') then
            take(fields[1], running_value(state.attempt, state.released, entry, state.tail), entry, band, fields[2])
          elseif paused then
            set_aside(band, entry, value, false)
          elseif shelf ~= '' then -- older work goes first
            set_aside(band, entry, value, true)
            shelf = shelf .. band
          else
            admit(band, entry, fields, value, true) -- a solo task found beside others goes to the shelf
          end
        end
      end
    until #pending < 200
  end
end
-- What a blocked reader got. Older work on the shelf goes first: then the entry waits there, in its order (protocol 5, 15, 16).
local function adopt()
  for i = 0, adopted - 1 do
    local band, entry, id = ARGV[ADOPTED + 3 * i], ARGV[ADOPTED + 3 * i + 1], ARGV[ADOPTED + 3 * i + 2]
    if owned(band, entry, me) then
      local fields = entry_fields(band, entry)
      if not fields then
        lost(band, entry)
      elseif id == '' then
        acknowledge(band, entry)
      elseif paused then
        set_aside(band, entry, call('HGET', LIVE, id), false)
        shelf = shelf .. band
      elseif shelf ~= '' then
        set_aside(band, entry, call('HGET', LIVE, id), true)
        shelf = shelf .. band
      else
        admit(band, entry, fields, call('HGET', LIVE, id), true)
      end
    end
  end
end
local function claim_shelf(band)
  local pending = grouped('XPENDING', KEYS[STREAMS + band], GROUP, '-', '+', want - got, SHELF)
  if #pending == 0 then
    local bands = call('HGET', META, 'shelf') or ''
    call('HSET', META, 'shelf', (string.gsub(bands, band, '')))
    return false
  end
  for k = 1, #pending do
    local entry = pending[k][1]
    local fields = entry_fields(band, entry)
    if not fields then
      lost(band, entry)
    elseif got > 0 and #(fields[2] or '') > room then
      done = true
    elseif not admit(band, entry, fields, call('HGET', LIVE, fields[1]), false) then
      done = true
    end
    if done or got >= want then
      done = true
      return false
    end
  end
  return true
end
-- What the common path left aside: one of several ends of a claim, or more than this turn may carry (in order, onto the shelf).
local function admit_odd()
  for _, item in ipairs(odd) do
    local band, entry, fields, value = unpack(item, 1, 4)
    if done or got >= want or (got > 0 and room < #(fields[2] or '')) then
      done = true
      if fields[1] == '' then acknowledge(band, entry) else set_aside(band, entry, value, true) end
    else
      admit(band, entry, fields, value, true)
    end
  end
  odd = {}
end

admit_odd()
if ARGV[10] == '1' then recover() else adopt() end
if want > got and not paused and not done then
  for band = 9, 0, -1 do
    if shelf ~= '' and find(shelf, band, 1, true) then
      repeat until not claim_shelf(band)
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
publish()
return answer()
