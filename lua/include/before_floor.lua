-- Whether the script's own clock stands before the partition's floor. A parked call is given the time at which it was taken,
-- which is earlier and does not count.
local function before_floor(floor, real, now)
  return math.max(real, now) < tonumber(floor or 0)
end
