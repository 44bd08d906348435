-- Renew (or take) a worker's lease (protocol 8). An id marked dead is never revived.
-- KEYS  1 set of worker ids  2 the worker's lease
-- ARGV  1 worker id  2 expiry in ms  3 facts (JSON)  4 Redis time of the last good renewal, ms (0: the first)  5 life of a dead mark, ms
-- Returns  now in ms, or -1 when the id is dead or was silent for longer than a mark lives
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local last = tonumber(ARGV[4])
if redis.call('GET', KEYS[2]) == 'dead' or (last > 0 and now - last > tonumber(ARGV[5])) then return -1 end
redis.call('SET', KEYS[2], ARGV[3], 'PX', ARGV[2])
redis.call('SADD', KEYS[1], ARGV[1])
return now
