-- The body of a record as read, or its first bytes.
local function body_of(record, length)
  return string.sub(record.raw, record.body_at, length and record.body_at + length - 1 or -1)
end
