-- Cuts the totals of `cap` lines, line by line in order: to what is held plus the least remaining of the record's
-- capped counters that still count. Returns what is cut off each line (empty when nothing is), or the number from 0 of
-- a counter that may cut and whose quota capacity is unknown, or only a bound that would cut.
local function cap_totals(record, totals, now)
  local uncharged, cut, taken = {}, false, {}
  local open = record.state == STATE_RESERVED
  for line = 1, record.count do
    local held, consumed = record.held[line], record.consumed[line]
    local free = open and math.max(held, consumed) or consumed
    local most = totals[line]
    for number, counter in ipairs(record.counters) do
      local weight = counter.weights[line]
      if weight and counter.cap and counter.algorithm.is_open(counter, now) then
        local capacity = counter.cap >= 0 and counter.cap or counter.capacity
        -- What does not go beyond the hold is cut by no capacity.
        if record.lines[line].caps and not capacity and totals[line] > free then
          return nil, number - 1
        end
        local room = counter.algorithm.room(counter, capacity or 0) - (taken[number] or 0)
        if record.lines[line].caps and counter.is_bound and totals[line] > free + math.max(math.floor(room / weight), 0) then
          return nil, number - 1
        end
        if record.lines[line].caps then
          most = math.min(most, math.max(held, free + math.max(math.floor(room / weight), 0)))
        end
      end
    end
    most = math.max(most, math.min(totals[line], free))
    for number, counter in ipairs(record.counters) do
      if counter.weights[line] then
        taken[number] = (taken[number] or 0) + counter.weights[line] * math.max(most - free, 0)
      end
    end
    uncharged[line] = totals[line] - most
    cut = cut or uncharged[line] > 0
    totals[line] = most
  end
  return cut and uncharged or {}
end
