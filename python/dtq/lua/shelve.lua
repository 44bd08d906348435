-- Move what a consumer holds to the shelf: hand-over after a death, reaping, hand-back of revoked claims (protocol 4-7, 10, 16, 19).
-- KEYS  the queue's keys (parts/prelude.lua)
-- ARGV  5 mode: hand_over | reap | hand_back  6 consumer  7 from: hand_over: watermark (claims below it had begun); hand_back: first revoked
--       8 to: hand_back: end of the revoked range (exclusive)  9 cause  10 most entries  11 end: 1 deletes the consumer when it holds nothing
--       then, for hand_over, the claim numbers that were executing at the death
--       7 for reap: 1 when an earlier call has moved others of the same batch
-- Returns  {moved, left (1: call again), deleted (1)}
--@include prelude
local listened = is_future(call('HGET', META, 'listeners'))
--@include events
--@include record
--@include entries
--@include finish
local mode, consumer, from, till, cause = ARGV[5], ARGV[6], tonumber(ARGV[7]), tonumber(ARGV[8]), ARGV[9]
local most = tonumber(ARGV[10])
local executing = {}
for i = 12, #ARGV do executing[ARGV[i]] = true end
-- A child that died with nothing executing died of what its handlers had left behind. What had ended there comes back
-- uncharged and is claimed alone; if that happens again to a task that was alone, it is charged.
local idle = #ARGV < 12

local function holdings(band, after)
  return grouped('XPENDING', STREAM .. band, GROUP, after, '+', 200, consumer)
end
-- What a dead worker held alone is charged; what it held in a batch, or got while waiting, nobody can know to have
-- started (protocol 19).
local function held_alone()
  local held, waiting = 0, false
  for band = 9, 0, -1 do
    for _, pending in ipairs(grouped('XPENDING', STREAM .. band, GROUP, '-', '+', 2, consumer)) do
      local fields = entry_fields(band, pending[1])
      local value = fields and call('HGET', LIVE, fields[1])
      local state = value and parse_live(value)
      if state and state.kind == 'r' and state.consumer == consumer and not tail_has(state.tail, 'm') then
        held = held + 1
        waiting = waiting or tail_has(state.tail, 'w')
      end
    end
  end
  return held <= 1 and not waiting and from == 0
end
local alone = mode == 'reap' and held_alone()
-- How many entries the consumer holds: counted up to `count` in each band.
local function holds(count)
  local held = 0
  for band = 9, 0, -1 do held = held + #grouped('XPENDING', STREAM .. band, GROUP, '-', '+', count, consumer) end
  return held
end

-- A claim whose handler never started: queued again, attempt unchanged.
local function give_back(band, id, state)
  call('HSET', LIVE, id, queued_value(state.attempt, state.released, state.entry, tail_drop(state.tail, 'w')))
  call('HINCRBY', META, 'running', -1)
  call('HINCRBY', META, 'handed_back', 1)
  shelve(band, state.entry, true)
end
-- A claim that had begun: stays running on the shelf, its next claim is attempt + 1. `m` marks that it was moved: its
-- old token is void, and an entry that is met again after its group was lost goes to the shelf as it is.
local function redeliver(band, id, state, charged)
  local tail = remember_attempt(id, state, history_line(state, cause, {error_class = 'WorkerLost', charged = charged}))
  tail = tail_drop(tail, 'w')
  local released = state.released
  if not charged then
    released = released + 1
    tail = tail_add(tail, 's')
  end
  tail = tail_add(tail, 'm')
  call('HSET', LIVE, id, 'r:' .. state.attempt .. ':' .. released .. ':' .. state.entry .. ':' .. state.consumer .. ':'
    .. integer(state.seq) .. ':' .. integer(state.started) .. ':' .. tail)
  call('HINCRBY', META, 'attempts_lost', 1)
  shelve(band, state.entry, true)
  if not charged then emit('TASK_RELEASED', id, state.attempt, worker_of(consumer)) end
end
local function end_cancelled(band, id, value, state, envelope)
  finish_here(id, 'cancelled', state, value, {cause = 'cancel requested', worker_id = worker_of(consumer)}, envelope,
    history_of(id, state.tail), band)
end
local function move(band, entry)
  local fields = entry_fields(band, entry)
  if not fields then return lost(band, entry) end
  local id = fields[1]
  if id == '' then return acknowledge(band, entry) end
  local value = call('HGET', LIVE, id)
  local state = value and parse_live(value)
  if not state then return shelve(band, entry, true) end -- foreign or finished: the next claim decides
  if state.entry ~= entry then return acknowledge(band, entry) end
  if state.kind == 'q' then
    if mode == 'hand_back' then return nil end -- read, not adopted: its reader still has it
    if cancel_requested(state.tail) then return end_cancelled(band, id, value, state, fields[2]) end
    return shelve(band, entry, true)
  end
  if tail_has(state.tail, 'm') then return shelve(band, entry, true) end
  if state.consumer ~= consumer then
    return grouped('XCLAIM', STREAM .. band, GROUP, state.consumer, 0, entry, 'JUSTID')
  end
  if mode == 'hand_back' and (state.seq < from or state.seq >= till) then return nil end
  -- begun or not: whoever held it is gone, or never starts it
  if cancel_requested(state.tail) then return end_cancelled(band, id, value, state, fields[2]) end
  if mode == 'hand_back' then return give_back(band, id, state) end
  if mode == 'hand_over' then
    if state.seq >= from then return give_back(band, id, state) end
    local guilty = executing[integer(state.seq)] or (idle and tail_has(state.tail, 's'))
    return redeliver(band, id, state, guilty == true and cause ~= 'released')
  end
  return redeliver(band, id, state, alone)
end

local moved, left = 0, 0
for band = 9, 0, -1 do
  local after = '-'
  repeat
    local pending = holdings(band, after)
    for k = 1, #pending do
      -- The reaper may die before its next call, and another one must not take the rest of a batch for held alone.
      if moved >= most and not (mode == 'reap' and holds(2) == 1) then
        left = 1
        break
      end
      after = '(' .. pending[k][1]
      move(band, pending[k][1])
      moved = moved + 1
    end
  until #pending < 200 or left == 1
end
local deleted = 0
if left == 0 and ARGV[11] == '1' then
  if holds(1) == 0 then -- only here, where nothing is pending: deleting a consumer drops its pending list (protocol 4)
    for band = 9, 0, -1 do call('XGROUP', 'DELCONSUMER', STREAM .. band, GROUP, consumer) end
    call('HDEL', SENDS, consumer)
    deleted = 1
  end
end
publish()
return {moved, left, deleted}
