-- Events are for watching: one message a script call, only while somebody listens (spec §9).
local events, listened
local function listening()
  if listened == nil then
    local till = call('HGET', META, 'listeners')
    listened = (till and tonumber(till) > now) or false
  end
  return listened
end
local function emit(kind, id, attempt, worker, task_type)
  if not listening() then return end
  events = events or {}
  events[#events + 1] = {event_id = id .. '/' .. attempt .. '/' .. kind .. '/' .. integer(now), ts = now, type = kind,
    task_id = id, queue = match(LIVE, '{(.*)}'), task_type = task_type, attempt = tonumber(attempt), worker_id = worker}
end
local function publish()
  if events then call('PUBLISH', CHANNEL, cjson.encode(events)) end
end
