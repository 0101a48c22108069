-- Whether these totals are the ones consumed last: what was charged on each line, or what was asked for where a cap
-- left some uncharged.
local function same_totals(record, totals)
  for line = 1, record.count do
    local consumed = record.consumed[line]
    if totals[line] ~= consumed and totals[line] ~= consumed + (record.uncharged[line] or 0) then
      return false
    end
  end
  return true
end
