-- Takes what an open record still holds off its counters, in memory; false where a counter holds less than that.
local function release_holds(record)
  for _, counter in ipairs(record.counters) do
    if counter.current then
      for line, weight in pairs(counter.weights) do
        counter.reserved = counter.reserved - weight * math.max(record.held[line] - record.consumed[line], 0)
      end
      if counter.reserved < 0 then
        return false
      end
      if counter.next_end == record.expires_at then
        counter.next_end = 0
      end
      counter.moved = true
    end
  end
  return true
end
