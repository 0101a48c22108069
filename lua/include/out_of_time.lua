-- include statuses
-- Answers for a script that may not write at this time: its caller no longer waits, or its own clock stands before the partition's floor, where
-- one is given. Nothing where it may. A parked call is given the time at which it was taken, which is earlier and does not count.
local function out_of_time(real, now, floor)
  if real > tonumber(ARGV[2]) then
    return { TOO_LATE, real, now, '' }
  end
  if math.max(real, now) < tonumber(floor or 0) then
    return { TOO_EARLY, real, now, '' }
  end
end
