#!lua flags=allow-oom
-- publish: publishes the partition's cursor, up to which the ledger has booked; it only rises.
-- KEYS     1 meta
-- ARGV     1 epoch  2 now ('' = Redis's)  3 epoch of the cursor  4 sequence of the cursor
-- returns  { status, real time, time, '' }    DONE    KEPT: as high is stored    ALARM: epoch found
-- event    none
-- include prelude

-- read
local real, now, facts, alarm = prelude(ARGV[2], 'writer')
if alarm then
  return alarm
end

-- check
if facts[4] then
  local epoch, sequence = string.match(facts[4], '^(%d+)-(%d+)$')
  epoch, sequence = tonumber(epoch), tonumber(sequence)
  if epoch > tonumber(ARGV[3]) or (epoch == tonumber(ARGV[3]) and sequence >= tonumber(ARGV[4])) then
    return { KEPT, real, now, '' }
  end
end

-- write
redis.call('HSET', KEYS[1], 'writer', ARGV[3] .. '-' .. ARGV[4])
return { DONE, real, now, '' }
