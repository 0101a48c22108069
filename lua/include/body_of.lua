-- The body of a record that was read, or its first `length` bytes.
local function body_of(record, length)
  return string.sub(record.raw, record.body_at, length and record.body_at + length - 1 or -1)
end
