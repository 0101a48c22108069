-- Whether totals are those that were consumed last: what was charged of each line, or what was asked for where a cap kept some.
local function same_totals(record, totals)
  for line = 1, record.count do
    local consumed = record.consumed[line]
    if totals[line] ~= consumed and totals[line] ~= consumed + (record.uncharged[line] or 0) then
      return false
    end
  end
  return true
end
