-- Names for the keys and arguments that every queue script receives in the same order (keys.py builds them).
local LIVE, META, SENDS, SCHEDULE, DEAD, LOST = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local RECENT = {succeeded = KEYS[7], failed = KEYS[8], dead_lettered = KEYS[9], cancelled = KEYS[10], expired = KEYS[11]}
local STREAMS = 12 -- KEYS[12 + band] is the stream of that band
local RECORD, IDEMPOTENCY, UNIQUE = KEYS[22], KEYS[23], KEYS[24] -- prefixes in the queue's slot
local CHANNEL, ENDED_RETENTION, RECENT_MAX, DEAD_MAX = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local GROUP, SHELF, PARKED = 'workers', 'shelf', 'parked'
local DISCARDED = 'discarded' -- the place of a dead letter that an operator took off its stream
local FOREVER = 9007199254740991
local MINIMUM_RETENTION = 60000 -- ms; a repeated enqueue must still find an ended task (protocol 11)
local STATUS = {pending = 1, queued = 2, running = 3, retrying = 4, succeeded = 5, failed = 6, dead_lettered = 7,
  cancelled = 8, expired = 9}
local call, sub, find, match = redis.call, string.sub, string.find, string.match
local clock = call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local function is_future(time) return time and tonumber(time) > now end
local function integer(number) return string.format('%.0f', number) end
