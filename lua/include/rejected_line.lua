-- The first line, from 0, whose total is above the hold of a meter that refuses excess.
local function rejected_line(record, totals)
  for line = 1, record.count do
    if record.lines[line].rejects_excess and totals[line] > math.max(record.held[line], record.consumed[line]) then
      return line - 1
    end
  end
  return nil
end
