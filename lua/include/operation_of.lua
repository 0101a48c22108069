-- The operation of a whole record; empty where it names none.
local function operation_of(record)
  local at = record.tail + 2
  for _ = 1, 2 * #record.subjects do
    local length = string.byte(record.raw, at)
    at = at + 1 + length
  end
  return (struct.unpack('<Bc0', record.raw, at))
end
