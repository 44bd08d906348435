-- Take or keep the lead (scheduler and reaper). Two leaders at once are harmless: every script they call is idempotent.
-- KEYS  1 leader
-- ARGV  1 worker id  2 expiry in ms
-- Returns  1 for the leader, else 0
local leader = redis.call('GET', KEYS[1])
if leader and leader ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
