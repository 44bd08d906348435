-- Add what one child has gathered of one queue: times by task type, for good, and by minute for an hour.
-- KEYS  1 meta hash  2 timings hash  3 minutes hash
-- ARGV  1 most task types  then per task type: its name, its cell
--       a cell: little-endian u64, 6 attempts by result; then of wait, execution and duration 19 buckets and the sum in us
-- Returns  0
-- Per task type the timings hash has a cell of sums. Of each minute the minutes hash has its number since 1970, the growth of
-- COUNTS (they are kept by the scripts that move tasks; `last` is what they were when this last looked), and the buckets and
-- sums of wait and execution. A minute takes the place of the one 64 minutes before.
local call = redis.call
local META, TIMINGS, MINUTES = KEYS[1], KEYS[2], KEYS[3]
local COUNTS = {'submitted', 'succeeded', 'failed', 'retried', 'dead_lettered', 'cancelled', 'expired'}
local OTHER = '(other)'
local CELL, CELL_FORMAT = 66, '<' .. string.rep('I8', 66)
local RESULTS, KEPT = 6, 40 -- of a cell: the attempts, then what a minute has of it: wait and execution
local MINUTE, MINUTE_FORMAT = 204, '<I8' .. string.rep('I4', 7) .. string.rep(string.rep('I4', 19) .. 'I8', 2)
local clock = call('TIME')
local minute = math.floor(clock[1] / 60)
local slot = string.format('%d', minute % 64)

-- times by task type
local names, cells, index = {}, {}, {}
for i = 2, #ARGV, 2 do
  names[#names + 1] = ARGV[i]
end
local sums = {}
for i = 1, KEPT do sums[i] = 0 end
if #names > 0 then
  local stored = call('HMGET', TIMINGS, unpack(names))
  local room = tonumber(ARGV[1]) - call('HLEN', TIMINGS)
  for i = 1, #names do
    local name, given = names[i], {struct.unpack(CELL_FORMAT, ARGV[2 * i + 1])}
    for k = 1, KEPT do sums[k] = sums[k] + given[RESULTS + k] end
    local known = stored[i]
    if not known and room <= 0 then -- a new one beyond the bound
      name = OTHER
      known = not index[OTHER] and call('HGET', TIMINGS, OTHER)
    elseif not known then
      room = room - 1
    end
    local at = index[name]
    if not at then
      at = #cells + 2
      index[name] = at
      cells[at - 1] = name
      cells[at] = known and #known == 8 * CELL and {struct.unpack(CELL_FORMAT, known)} or {}
    end
    local cell = cells[at]
    for k = 1, CELL do cell[k] = (cell[k] or 0) + given[k] end
  end
  for at = 2, #cells, 2 do cells[at] = struct.pack(CELL_FORMAT, unpack(cells[at], 1, CELL)) end
  call('HSET', TIMINGS, unpack(cells))
end

-- this minute
local totals = call('HMGET', META, unpack(COUNTS))
local kept = call('HMGET', MINUTES, slot, 'last')
local numbers = kept[1] and #kept[1] == MINUTE and {struct.unpack(MINUTE_FORMAT, kept[1])} or {}
if numbers[1] ~= minute then
  numbers = {minute}
  for k = 2, 1 + #COUNTS + KEPT do numbers[k] = 0 end
end
local last = kept[2] and #kept[2] == 8 * #COUNTS and {struct.unpack('<' .. string.rep('I8', #COUNTS), kept[2])} or {}
for k = 1, #COUNTS do
  totals[k] = tonumber(totals[k] or 0)
  numbers[1 + k] = numbers[1 + k] + math.max(0, totals[k] - (last[k] or 0))
end
for k = 1, KEPT do numbers[1 + #COUNTS + k] = numbers[1 + #COUNTS + k] + sums[k] end
call('HSET', MINUTES, slot, struct.pack(MINUTE_FORMAT, unpack(numbers, 1, 1 + #COUNTS + KEPT)),
  'last', struct.pack('<' .. string.rep('I8', #COUNTS), unpack(totals)))
return 0
