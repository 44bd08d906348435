-- Names for the keys and arguments that every queue script receives in the same order (keys.py builds them).
-- A key, and a table, that a script is given costs it as much as half a command: so what has many is given as a prefix.
local LIVE, META, SENDS, SCHEDULE, DEAD, LOST = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
-- Prefixes in the queue's slot: of streams (then the band), recent lists (the status), records (the id), locks.
local STREAM, RECENT, RECORD, IDEMPOTENCY, UNIQUE = KEYS[7], KEYS[8], KEYS[9], KEYS[10], KEYS[11]
local CHANNEL, ENDED_RETENTION, RECENT_LAST, DEAD_MAX = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local GROUP, SHELF, PARKED = 'workers', 'shelf', 'parked'
local DISCARDED = 'discarded' -- the place of a dead letter that an operator took off its stream
local FOREVER = 9007199254740991
local MINIMUM_RETENTION = 60000 -- ms; a repeated enqueue must still find an ended task (protocol 11)
local call, sub, find, match = redis.call, string.sub, string.find, string.match
local clock = call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local function is_future(time) return time and tonumber(time) > now end
local function integer(number) return string.format('%d', number) end
