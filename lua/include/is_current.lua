-- Whether the stored figures of a counter count work of its record's time.
local function is_current(counter)
  return counter.current
end
