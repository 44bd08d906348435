-- Claiming what is no plain first attempt: found again, adopted or shelved (protocol 2, 5, 13-16, 19).
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
    grouped('XCLAIM', STREAM .. band, GROUP, state.consumer, 0, entry, 'JUSTID')
  end
end
-- An entry that is no task of ours goes to the dead letters as raw bytes; one whose task ended is only acked.
local function discard_stray(band, entry, fields)
  local id = fields[1]
  if call('EXISTS', RECORD .. id) == 1 then
    absorb(band, entry)
    emit('TASK_DUPLICATE_ABSORBED', id, 0, worker_of(me))
  else
    bury('', cmsgpack.pack(fields))
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
-- A task whose type is paused waits with a consumer that claims do not look at (protocol 15). Not more than some a turn:
-- a stream may hold any number of them; what is left comes with the next turn, for which a bell is rung.
local park
if paused_types then
  local parked, PARKS_A_TURN = 0, 200
  park = function(band, entry)
    grouped('XCLAIM', STREAM .. band, GROUP, PARKED, 0, entry, 'JUSTID')
    parked = parked + 1
    if parked >= PARKS_A_TURN and not done then
      done = true
      ring(band)
    end
  end
end
-- What must be alone is nothing for a child that has other claims under way (protocol 19).
local beside, yielding = math.floor(flags / 2) % 2 == 1, flags >= 4
-- Claims one entry unless its state forbids it. `mine`: the entry is in this consumer's own pending list.
-- Answers false when the entry must be claimed alone and this child already has others.
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
  if paused_types then
    local task_type = envelope_type(envelope)
    if task_type and find(paused_types, ';' .. task_type .. ';', 1, true) then
      park(band, entry)
      return true
    end
  end
  local alone = state.kind == 'r' or tail_has(tail, 's')
  if done or (alone and (got > 0 or beside)) then
    if mine then shelve(band, entry, true) end
    return false
  end
  if not mine then grouped('XCLAIM', STREAM .. band, GROUP, me, 0, entry, 'JUSTID') end
  local attempt = state.attempt
  if state.kind == 'r' then
    attempt = attempt + 1
    call('HINCRBY', META, 'redelivered', 1)
    tail = tail_add(tail, 's') -- handed back unbegun, it is claimed alone again
  else
    started = started + 1
  end
  take(id, running_value(attempt, state.released, entry, tail), entry, band, envelope)
  if listened then emit('TASK_STARTED', id, attempt, worker_of(me), envelope_type(envelope)) end
  if alone then done = true end
  return true
end

-- After a lost reply: everything in the own pending list that the child does not hold, with new claim numbers (protocol 2).
local function recover()
  local holds = {}
  for i = 0, held - 1 do holds[ARGV[HELD + i]] = true end
  for place = 1, #bands do
    local band = sub(bands, place, place)
    local from = '-'
    repeat
      local pending = grouped('XPENDING', STREAM .. band, GROUP, from, '+', 200, me)
      for k = 1, #pending do
        local entry = pending[k][1]
        from = '(' .. entry
        local fields = entry_fields(band, entry)
        local value = fields and call('HGET', LIVE, fields[1])
        local state = value and parse_live(value)
        if not (state and state.consumer == me and holds[integer(state.seq)]) then
          if not fields then
            lost(band, entry)
          elseif state and state.entry == entry and state.kind == 'r' and state.consumer == me
            and not tail_has(state.tail, 'm') then
            if cancel_requested(state.tail) then -- what the child does not hold, it has not begun
              finish_here(fields[1], 'cancelled', state, value, {cause = 'cancel requested'}, fields[2],
                history_of(fields[1], state.tail), band)
            else
              take(fields[1], running_value(state.attempt, state.released, entry, state.tail), entry, band, fields[2])
              if tail_has(state.tail, 's') then done = true end
            end
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
-- A child with others under way passes over what must be alone: it is for an empty one, which may sleep while the bell has
-- woken this one. So the bell is passed on. If no empty child has come for a while, one child is told to yield, and another
-- not before a long while, so that the rest goes on. It claims nothing more until the task is gone or it is empty itself,
-- and rings when it looks. Answers whether to go on here.
local hint, bell = '', nil -- the bell is rung last: this turn would take it
local function pass_over(band, waited_ms)
  local EMPTY_CHILD_MS, NEXT_YIELD_MS = 500, 5000
  local soon = waited_ms < EMPTY_CHILD_MS
  if yielding then
    hint = 'y'
    if outcomes == 0 then bell = band end
  elseif soon or now - tonumber(call('HGET', META, 'yielded') or 0) < NEXT_YIELD_MS then
    hint = 'w'
    if soon and adopted > 0 then bell = band end
  else
    hint, bell = 'y', band
    call('HSET', META, 'yielded', integer(now))
  end
  return hint ~= 'y'
end
-- Behind a task that it takes alone it looks on, for those that only have to end: they must not wait until that has run.
local function claim_shelf(band)
  local LOOKS_A_TURN = 20 -- so many are left lying; what is behind them waits for an empty child as well
  local after, looks, ending = '-', 0, false
  while true do
    local pending = grouped('XPENDING', STREAM .. band, GROUP, after, '+', ending and LOOKS_A_TURN or want - got, SHELF)
    if #pending == 0 then
      if after == '-' then
        local bands = call('HGET', META, 'shelf') or ''
        call('HSET', META, 'shelf', (string.gsub(bands, band, '')))
      end
      return
    end
    for k = 1, #pending do
      local entry, before = pending[k][1], got
      local fields = entry_fields(band, entry)
      if not fields then
        lost(band, entry)
      elseif not ending and got > 0 and #(fields[2] or '') > room then
        done = true
      elseif not admit(band, entry, fields, call('HGET', LIVE, fields[1]), false) then
        after, looks = '(' .. entry, looks + 1
        if not ending then done = not beside or not pass_over(band, pending[k][3]) end
        if looks >= LOOKS_A_TURN and (ending or not done) then return end
      else
        ending = ending or (done and got > before)
      end
      if (done or got >= want) and not ending then
        done = true
        return
      end
    end
  end
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
