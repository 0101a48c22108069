-- include settle_counter
-- Moves the record's totals and its counters in memory; only counters that still count what is of its time move.
-- Returns the line, from 0, whose total would take a counter beyond the largest amount.
local function plan_moves(record, totals, resolves)
  local open = record.state == STATE_RESERVED
  for _, counter in ipairs(record.counters) do
    if counter.current then
      local largest
      local freed, used = 0, 0
      for line, weight in pairs(counter.weights) do
        local held, consumed, total = record.held[line], record.consumed[line], totals[line]
        local before = open and math.max(held - consumed, 0) or 0
        local after = (open and not resolves) and math.max(held - total, 0) or 0
        freed = freed + weight * (before - after)
        used = used + weight * (total - consumed)
        if not largest or total > totals[largest] then
          largest = line
        end
      end
      settle_counter(counter, freed, used)
      if counter.reserved < 0 and (counter.is_new or not counter.algorithm.is_restorable) then
        counter.reserved, counter.next_end = 0, 0
      elseif counter.reserved < 0 then
        error('counter ' .. counter.field .. ' holds less than the reservation')
      end
      if counter.consumed > 9e15 and largest then
        return largest - 1
      end
      counter.moved = true
    end
  end
  record.consumed = totals
  return nil
end
