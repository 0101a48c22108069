-- Adds a hold to a counter in memory. Its `next_end` is never later than the end of any hold: 0 where nothing is held, or where that
-- is not known; one that has passed says nothing of the holds that are left.
local function add_hold(counter, units, expires_at)
  if units == 0 then
    return
  end
  if counter.reserved == 0 or expires_at < counter.next_end then
    counter.next_end = expires_at
  end
  counter.reserved = counter.reserved + units
end
