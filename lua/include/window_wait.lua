-- How long until so many units may fit into a window that ends at `window_end`, in ms; -1 for never. Where only holds
-- leave no room, the end of the next one is the earliest that can help.
local function window_wait(counter, need, window_end, now)
  local to_end = math.max(window_end - now, 0)
  if need > counter.capacity then
    return -1
  end
  if need > counter.capacity - counter.consumed then
    return to_end
  end
  return math.min(counter.next_end > now and counter.next_end - now or 1000, to_end)
end
