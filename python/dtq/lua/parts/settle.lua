-- Settling what is no plain success: retry, release, failure, cancelled or stale claim (protocol 1, 10, 17).
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
  schedule(id, now + delay)
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
  local token, state = tokens[i], states[i]
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
    local head, record = heads[i], has_records and ARGV[RECORDS + i - 1] or ''
    code[i] = settle_one(ids[i], states[i], sub(head, 1, 1), sub(head, 2, 2), tonumber(sub(head, 3)), record)
  end
end
