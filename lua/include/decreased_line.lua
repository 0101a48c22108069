-- The first line, from 0, whose total is below what is consumed already.
local function decreased_line(record, totals)
  for line = 1, record.count do
    if totals[line] < record.consumed[line] then
      return line - 1
    end
  end
  return nil
end
