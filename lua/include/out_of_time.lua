-- include statuses
-- The answer of a script that may not write now: its caller no longer waits, or its clock is before the partition's
-- floor, if one is given. Nothing where it may write. For a parked call, `now` is the earlier time at which it was
-- taken, so Redis's own time counts.
local function out_of_time(real, now, floor)
  if real > tonumber(ARGV[2]) then
    return { TOO_LATE, real, now, '' }
  end
  if math.max(real, now) < tonumber(floor or 0) then
    return { TOO_EARLY, real, now, '' }
  end
end
