-- Events are for watching: one message a script call, only while somebody listens (spec §9). The script that includes
-- this sets `listened` from the meta field `listeners`; where nobody listens, nothing is ever made.
local emit, publish
local function nothing() end
if listened then
  local events = {}
  emit = function(kind, id, attempt, worker, task_type)
    events[#events + 1] = {event_id = id .. '/' .. attempt .. '/' .. kind .. '/' .. integer(now), ts = now, type = kind,
      task_id = id, queue = match(LIVE, '{(.*)}'), task_type = task_type, attempt = tonumber(attempt), worker_id = worker}
  end
  publish = function()
    if #events > 0 then call('PUBLISH', CHANNEL, cjson.encode(events)) end
  end
else
  emit, publish = nothing, nothing
end
