-- The head and lines of a record, as values with the format that packs them. They are packed together with the bytes
-- before and after them: Redis's Lua would hash and keep each string in between.
local function record_values(record)
  local uncharged = record.uncharged
  local kept, start_after = uncharged and #uncharged or 0, record.start_after or 0
  local flags = (record.late and 1 or 0) + (record.degraded and 4 or 0) + (kept > 0 and 8 or 0) + (start_after > 0 and 16 or 0)
    + (record.correction or 0)
  local values = { record.layout, record.state, record.count, flags, record.step, record.epoch, record.expires_at, record.born_at,
    record.latest_expiry, record.sequence }
  local at = #values
  for line = 1, record.count do
    values[at + 1], values[at + 2] = record.held[line], record.consumed[line]
    at = at + 2
  end
  for line = 1, kept do
    values[at + line] = uncharged[line]
  end
  if start_after > 0 then
    kept = kept + 1
    values[at + kept] = start_after
  end
  local format = 'BBBBI4i8i8i8i8i8' .. string.rep('i8i8', record.count) .. string.rep('i8', kept)
  if record.layout > 2 then
    values[at + kept + 1], format = record.unmoved, format .. 'I4'
  end
  return values, format
end
