-- include settle_counter
-- Moves the record's totals and its counters in memory. Only counters move that still count work of the record's time.
-- Returns the line, from 0, whose total would take a counter beyond the largest amount. One that the record does not
-- name may be as full when it begins, and then stays so: it must not keep work from before it from being booked.
local function plan_moves(record, totals, resolves)
  local open = record.state == STATE_RESERVED
  for number, counter in ipairs(record.counters) do
    if counter.current then
      local largest
      local used, held = 0, counter.algorithm.held
      for line, weight in pairs(counter.weights) do
        used = used + weight * (totals[line] - record.consumed[line])
        if not largest or totals[line] > totals[largest] then
          largest = line
        end
      end
      local before = open and held(counter, record.held, record.consumed) or 0
      local after = (open and not resolves) and held(counter, record.held, totals) or 0
      settle_counter(counter, before - after, used)
      if counter.reserved < 0 and (counter.is_new or not counter.algorithm.is_restorable) then
        counter.reserved, counter.next_end = 0, 0
      elseif counter.reserved < 0 then
        error('counter ' .. counter.field .. ' holds less than the reservation')
      end
      if number > record.named then
        counter.consumed = math.min(counter.consumed, 9e15)
      elseif counter.consumed > 9e15 and largest then
        return largest - 1
      end
      counter.moved = true
    end
  end
  record.consumed = totals
  return nil
end
