"""What no kill may do, done behind dtq's back: a run with it has to be judged faulty, or the judge is worth nothing."""

LOSE = """
local ids = redis.call('HRANDFIELD', KEYS[1], 20)
for _, id in ipairs(ids) do
  local entry = string.match(redis.call('HGET', KEYS[1], id), '^q:1:0:([^:]+):$')
  if entry then
    redis.call('HDEL', KEYS[1], id)
    for band = 0, 9 do redis.call('XDEL', KEYS[2] .. band, entry) end
    return id
  end
end
"""
"""Take one queued task away, all of it."""

DOUBLE = """
local ids = redis.call('HRANDFIELD', KEYS[1], 20)
for _, id in ipairs(ids) do
  local entry = string.match(redis.call('HGET', KEYS[1], id), '^r:1:0:([^:]+):')
  for band = 0, 9 do
    local found = entry and redis.call('XRANGE', KEYS[2] .. band, entry, entry)[1]
    if found then
      local again = redis.call('XADD', KEYS[2] .. band, '*', unpack(found[2]))
      redis.call('HSET', KEYS[1], id, 'q:1:0:' .. again .. ':')
      redis.call('HINCRBY', KEYS[3], 'running', -1)
      return id
    end
  end
end
"""
"""Queue one running task again as the same attempt, as if nobody had claimed it."""
