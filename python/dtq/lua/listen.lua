-- Say that somebody listens to a queue's events for a while (spec §9).
-- KEYS  the queue's keys (parts/prelude.lua)
-- ARGV  5 how long, in ms
-- Returns  1
--@include prelude
call('HSET', META, 'listeners', integer(now + tonumber(ARGV[5])))
return 1
