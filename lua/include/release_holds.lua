-- include held_in
-- Takes what an open record still holds off its counters, in memory; false where a counter holds less.
local function release_holds(record)
  for _, counter in ipairs(record.counters) do
    if counter.current then
      counter.algorithm.give_back(counter, held_in(record, counter))
      if counter.reserved < 0 and (counter.is_new or not counter.algorithm.is_restorable) then
        counter.reserved, counter.next_end = 0, 0
      elseif counter.reserved < 0 then
        return false
      end
      counter.moved = true
    end
  end
  return true
end
