-- Whether what is stored of a counter counts work of its record's time.
local function is_current(counter)
  return counter.current
end
