-- Records, envelopes and live values: the layouts of docs/decisions/0001-wire-format.md.
local STATUS = {pending = 1, queued = 2, running = 3, retrying = 4, succeeded = 5, failed = 6, dead_lettered = 7,
  cancelled = 8, expired = 9}
local function envelope_type(envelope)
  if not envelope or #envelope < 18 or string.byte(envelope, 1) ~= 1 then return nil end
  local length = string.byte(envelope, 18)
  return sub(envelope, 19, 18 + length)
end
-- band, max attempts, retention in ms and whether dead-lettering is off; nil when damaged or of another version.
local function envelope_head(envelope)
  if not envelope or #envelope < 18 or string.byte(envelope, 1) ~= 1 then return nil end
  local _, band, attempts, _, retention, flags = struct.unpack('<BBI2I4I8B', envelope)
  return band, attempts, retention, flags % 2 == 1
end
local function pack_record(status, state, times, place, token, detail, envelope, history)
  return struct.pack('<BBI2I2I8I8I8', 1, status, state.attempt, state.released, times.created, times.started, times.ended)
    .. string.char(#place) .. place
    .. struct.pack('<I4', #token) .. token .. struct.pack('<I4', #detail) .. detail
    .. struct.pack('<I4', #envelope) .. envelope .. history
end
-- A record as a table, or nil when there is none or it is damaged.
local function read_record(raw)
  if not raw or #raw < 43 or string.byte(raw, 1) ~= 1 then return nil end
  local record = {raw = raw}
  local _
  _, record.status, record.attempt, record.released, record.created, record.started, record.ended =
    struct.unpack('<BBI2I2I8I8I8', raw)
  local at = 32 + string.byte(raw, 31)
  record.place = sub(raw, 32, at - 1)
  for _, name in ipairs({'token', 'detail', 'envelope'}) do
    if at + 3 > #raw then return nil end
    local length = struct.unpack('<I4', raw, at)
    if at + 3 + length > #raw then return nil end
    record[name] = sub(raw, at + 4, at + 3 + length)
    at = at + 4 + length
  end
  record.history_at = at
  record.history = sub(raw, at)
  return record
end
-- A live value (protocol, part 1) as a table; kind is 'r' or 'q'.
local function parse_live(value)
  if sub(value, 1, 1) == 'r' then
    local attempt, released, entry, consumer, seq, started, tail =
      match(value, '^r:(%d+):(%d+):([^:]+):([^:]+):(%d+):(%d+):(.*)$')
    if not attempt then return nil end
    return {kind = 'r', attempt = tonumber(attempt), released = tonumber(released), entry = entry, consumer = consumer,
      seq = tonumber(seq), started = tonumber(started), tail = tail}
  end
  local kind, attempt, released, entry, tail = match(value, '^([qp]):(%d+):(%d+):([^:]*):(.*)$')
  if not attempt then return nil end
  return {kind = kind, attempt = tonumber(attempt), released = tonumber(released), entry = entry, tail = tail}
end
local function queued_value(attempt, released, entry, tail)
  return 'q:' .. attempt .. ':' .. released .. ':' .. entry .. ':' .. tail
end
-- One field of a tail: 'x' (ttl), 'd' (deadline), 'u' (unique), 'i' (idempotency key), 'b' (batch).
local function tail_field(tail, letter)
  local at = find(';' .. tail, ';' .. letter, 1, true)
  if not at then return nil end
  return match(tail, '^([^;]*);', at + 1)
end
local function tail_has(tail, letter) return find(';' .. tail, ';' .. letter .. ';', 1, true) ~= nil end
local function cancel_requested(tail) return sub(tail, -1) == 'c' end
local function tail_add(tail, letter)
  if tail_has(tail, letter) then return tail end
  if cancel_requested(tail) then return sub(tail, 1, -2) .. letter .. ';c' end
  return tail .. letter .. ';'
end
local function tail_drop(tail, letter)
  local at = find(';' .. tail, ';' .. letter .. ';', 1, true)
  if not at then return tail end
  return sub(tail, 1, at - 1) .. sub(tail, at + 2)
end
-- Why a task may not start any more: 'ttl', 'deadline' or nil.
local function overdue(tail)
  if tail == '' then return nil end
  local ttl, deadline = tail_field(tail, 'x'), tail_field(tail, 'd')
  if ttl and now >= tonumber(ttl) then return 'ttl' end
  if deadline and now >= tonumber(deadline) then return 'deadline' end
  return nil
end
local function worker_of(consumer) return match(consumer, '^(.*)%.%d+%.%d+$') or consumer end
local function entry_time(entry) return tonumber(match(entry, '^(%d+)-')) or 0 end
local function history_line(state, cause, extra)
  local line = {attempt = state.attempt, cause = cause, started_ms = state.started, ended_ms = now,
    worker_id = state.consumer and worker_of(state.consumer) or nil}
  for name, value in pairs(extra or {}) do line[name] = value end
  return cjson.encode(line) .. '\n'
end
