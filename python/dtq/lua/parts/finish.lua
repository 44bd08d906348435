-- Every end of a task goes through here: record, recent list, counters, locks, then ack and delete of its entry.
local function release_locks(id, tail, status)
  local unique = tail_field(tail, 'u')
  if unique and call('GET', UNIQUE .. unique) == id then call('DEL', UNIQUE .. unique) end
  local key = tail_field(tail, 'i')
  if key then
    local held = call('GET', IDEMPOTENCY .. key)
    local fingerprint, holder = match(held or '', '^[^ ]* ([^ ]*) ([^ ]*)')
    if holder == id then
      local state = status == 'succeeded' and 'completed' or 'failed'
      call('SET', IDEMPOTENCY .. key, state .. ' ' .. fingerprint .. ' ' .. id .. ' ' .. status, 'KEEPTTL')
    end
  end
end
local EVENT = {succeeded = 'TASK_SUCCEEDED', failed = 'TASK_FAILED', dead_lettered = 'TASK_DEAD_LETTERED',
  cancelled = 'TASK_CANCELLED', expired = 'TASK_EXPIRED'}
-- How long the record of an end is kept, in ms (0 not at all, FOREVER without a limit).
local function retention_of(status, envelope)
  if status == 'failed' or status == 'dead_lettered' then return tonumber(ENDED_RETENTION) end
  local _, _, retention = envelope_head(envelope)
  retention = retention or tonumber(ENDED_RETENTION)
  if status == 'succeeded' then return retention end
  return math.max(retention, MINIMUM_RETENTION)
end
local function store(id, record, retention)
  if retention <= 0 then
    call('DEL', RECORD .. id)
  elseif retention >= FOREVER then
    call('SET', RECORD .. id, record)
  else
    call('SET', RECORD .. id, record, 'PX', integer(retention))
  end
end
local function remember(id, status)
  call('LPUSH', RECENT .. status, id)
  call('LTRIM', RECENT .. status, 0, RECENT_LAST)
end
-- Adds to the dead-letter stream, which is bounded: what goes for it is counted.
local function bury(id, raw)
  local entry = call('XADD', DEAD, '*', id, raw)
  if DEAD_MAX ~= '0' then
    local trimmed = call('XTRIM', DEAD, 'MAXLEN', '~', DEAD_MAX)
    if trimmed > 0 then call('HINCRBY', META, 'dead_letters_trimmed', trimmed) end
  end
  return entry
end
-- Puts a record on the dead-letter stream and answers it with its place in it.
local function dead_letter(id, record)
  local entry = bury(id, record)
  return sub(record, 1, 30) .. string.char(#entry) .. entry .. sub(record, 32 + string.byte(record, 31))
end
-- Every claim comes to one count, so that how many there ever were needs none of its own where tasks are claimed
-- (broker/counting.py). A success is one by itself; a task on the shelf (mark `m`) has had its claim counted as lost.
local function count_attempt(state, status)
  if tail_has(state.tail, 'm') then
    call('HINCRBY', META, 'ended_unclaimed', 1)
  elseif status ~= 'succeeded' then
    call('HINCRBY', META, 'attempts_' .. status, 1)
  end
end
-- record: ready bytes. state: the parsed live value; kind 'p' for a scheduled task, which has no band.
local function finish(id, status, state, record, retention, band, task_type)
  if status == 'dead_lettered' then record = dead_letter(id, record) end
  store(id, record, retention)
  if state.kind == 'p' then call('ZREM', SCHEDULE, id) else call('HDEL', LIVE, id) end
  if state.retrying then call('HINCRBY', META, 'retrying', -1) end
  if retention > 0 then remember(id, status) end
  call('HINCRBY', META, status, 1)
  if state.kind == 'r' then
    call('HINCRBY', META, 'running', -1)
    count_attempt(state, status)
  end
  release_locks(id, state.tail, status)
  if band then acknowledge(band, state.entry) end
  emit(EVENT[status], id, state.attempt, state.consumer and worker_of(state.consumer), task_type)
end
-- An end that Lua itself decides (cancel, expiry, attempts used up by deaths, message lost).
-- `old` is the task's record (history of a live task, or the record of a scheduled one), or nil.
local function finish_here(id, status, state, value, detail, envelope, old, band)
  local created = old and old.created or entry_time(state.entry)
  local history = old and old.history or ''
  envelope = envelope or (old and old.envelope) or ''
  local times = {created = created, started = state.started or (old and old.started) or 0, ended = now}
  local record = pack_record(STATUS[status], state, times, '', value, cjson.encode(detail), envelope, history)
  finish(id, status, state, record, retention_of(status, envelope), band, envelope_type(envelope))
end
local function history_of(id, tail)
  if not tail_has(tail, 'h') then return nil end
  return read_record(call('GET', RECORD .. id))
end
-- Adds a line to the history of a live task; answers the tail that says so.
local function remember_attempt(id, state, line)
  local old = history_of(id, state.tail)
  local created = old and old.created or entry_time(state.entry)
  local times = {created = created, started = state.started or 0, ended = now}
  call('SET', RECORD .. id, pack_record(0, state, times, '', '', '', '', (old and old.history or '') .. line))
  return tail_add(state.tail, 'h')
end
