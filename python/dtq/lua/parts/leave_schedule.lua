-- Takes a task off the schedule: pending or retrying -> queued (attempt + 1 for retrying), or expired where it is too late
-- (spec §1). Answers nil when it is queued, else why it has expired: 'ttl' or 'deadline'. state: of the record's token.
local function leave_schedule(id, record, state, band)
  local retrying = record.status == STATUS.retrying
  local why = overdue(state.tail)
  if why then -- a retrying task makes two legal moves here: retrying -> queued -> expired
    local plain = {kind = 'p', attempt = record.attempt, released = record.released, entry = '', tail = state.tail,
      retrying = retrying}
    finish_here(id, 'expired', plain, record.token, {cause = why}, record.envelope, record, nil)
    return why
  end
  local attempt = retrying and record.attempt + 1 or record.attempt
  local entry = call('XADD', STREAM .. band, '*', id, record.envelope) -- first: it fails if the key is no stream
  use_band(band)
  local tail = tail_drop(tail_drop(state.tail, 'w'), 's')
  if retrying then
    local times = {created = record.created, started = 0, ended = 0}
    call('SET', RECORD .. id, pack_record(0, {attempt = attempt, released = record.released}, times, '', '', '', '', record.history))
    tail = tail_add(tail, 'h')
    call('HINCRBY', META, 'retrying', -1)
  else
    call('DEL', RECORD .. id)
  end
  call('HSET', LIVE, id, queued_value(attempt, record.released, entry, tail))
  call('ZREM', SCHEDULE, id)
  emit(retrying and 'TASK_RETRIED' or 'TASK_QUEUED', id, attempt, nil, envelope_type(record.envelope))
  return nil
end
