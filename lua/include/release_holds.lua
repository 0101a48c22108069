-- include held_in
-- Takes what an open record still holds off its counters, in memory; false where a counter holds less than that.
local function release_holds(record)
  for _, counter in ipairs(record.counters) do
    if counter.current then
      counter.reserved = counter.reserved - held_in(record, counter)
      if counter.reserved < 0 and counter.is_new then
        counter.reserved = 0
      elseif counter.reserved < 0 then
        return false
      end
      if counter.reserved == 0 then
        counter.next_end = 0
      end
      counter.moved = true
    end
  end
  return true
end
