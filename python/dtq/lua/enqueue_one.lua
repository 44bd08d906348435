-- Accept one new task without options: enqueue.lua's common path, cut down to what a single call waits for.
-- KEYS  1 live hash  2 meta hash  3 prefix of the streams  4 prefix of the records
-- ARGV  1 place (the band digit)  2 id  3 envelope
-- Returns  1 accepted, 0 nothing done: options, a listener, a new band or a known id need enqueue.lua
local call = redis.call
local band, id = ARGV[1], ARGV[2]
local facts = call('HMGET', KEYS[2], 'listeners', 'bands')
if #band > 1 or facts[1] or not string.find(facts[2] or '', band, 1, true)
  or call('EXISTS', KEYS[4] .. id) == 1 then
  return 0
end
local entry = call('XADD', KEYS[3] .. band, '*', id, ARGV[3])
if call('HSETNX', KEYS[1], id, 'q:1:0:' .. entry .. ':') == 0 then -- hardly ever: so it is not asked before
  call('XDEL', KEYS[3] .. band, entry)
  return 0
end
call('HINCRBY', KEYS[2], 'submitted', 1)
return 1
