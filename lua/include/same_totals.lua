-- Whether totals are those of the record. Where a cap kept some uncharged, what was asked for then is above what is charged.
local function same_totals(record, totals)
  for line = 1, record.count do
    local consumed = record.consumed[line]
    local was_capped = record.capped and record.lines[line].caps and consumed >= record.held[line]
    if totals[line] ~= consumed and not (was_capped and totals[line] > consumed) then
      return false
    end
  end
  return true
end
