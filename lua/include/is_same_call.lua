-- Whether a record came from the same request, to the byte.
local function is_same_call(record, body)
  return string.sub(record.raw, record.body_at, record.body_at + 15) == string.sub(body, 1, 16)
end
