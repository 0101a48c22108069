-- How long work that is admitted now has to wait at least before it may start, by the counters that say so:
-- shadow checks never do.
local function longest_delay(checks)
  local longest = 0
  for number = 1, #checks do
    local delay = not checks[number].shadow and checks[number].algorithm.delay
    if delay then
      longest = math.max(longest, delay(checks[number]))
    end
  end
  return longest
end
