-- Keep the result of a side effect that ran once, if the key is still held by this run (spec §7).
-- KEYS  1 the key of `once`
-- ARGV  1 'processing <run>' as it was set  2 'done <result>', or '' to let go  3 how long the result is kept, in ms
-- Returns  1, or 0 when another run holds the key by now
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
if ARGV[2] == '' then
  redis.call('DEL', KEYS[1])
else
  redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
end
return 1
