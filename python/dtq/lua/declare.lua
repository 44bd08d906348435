-- Declare a worker dead, only if its lease is absent (protocol 8). Until then its id may still be renewed.
-- KEYS  1 set of worker ids  2 the worker's lease
-- ARGV  1 worker id  2 life of the mark, ms
-- Returns  1 when the id is (now) marked dead, 0 when its lease stands
local lease = redis.call('GET', KEYS[2])
if lease == 'dead' then return 1 end
if lease then return 0 end
redis.call('SET', KEYS[2], 'dead', 'PX', ARGV[2])
return 1
