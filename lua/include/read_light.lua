-- Reads a light counter as it counts new work or, if given, work of `born_at`.
local function read_light(counter, raw, epoch, now, born_at)
  counter.raw, counter.known, counter.moved = raw, true, false
  counter.consumed, counter.reserved, counter.next_end = 0, 0, 0
  counter.current, counter.later, counter.missing = false, false, not raw
  counter.algorithm.load(counter, raw, born_at or now, not born_at, now, epoch, 0)
end
