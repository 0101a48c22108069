-- Reads a light counter as it counts new work.
local function read_light(counter, raw, now)
  counter.raw, counter.known, counter.moved = raw, true, false
  counter.consumed, counter.reserved, counter.next_end = 0, 0, 0
  counter.current, counter.later, counter.missing = false, false, not raw
  counter.algorithm.load(counter, raw, now, true, now)
end
