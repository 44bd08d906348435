-- Which workers have no lease, and when the next one may run out.
-- KEYS  1 set of worker ids
-- ARGV  1 prefix of the leases' keys
-- Returns  {ms until the first lease runs out, -1 where there is none, ids without a lease or marked dead ...}
local out, first = {-1}, nil
for _, id in ipairs(redis.call('SMEMBERS', KEYS[1])) do
  local lease = ARGV[1] .. id
  local left = redis.call('PTTL', lease)
  if left < 0 or redis.call('GETRANGE', lease, 0, 3) == 'dead' then
    out[#out + 1] = id
  elseif not first or left < first then
    first = left
  end
end
out[1] = first or -1
return out
