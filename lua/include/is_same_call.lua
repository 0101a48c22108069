-- Whether a record came from a call of the same meaning, to the byte.
local function is_same_call(record, body)
  return string.sub(record.raw, record.body_at, record.body_at + 15) == string.sub(body, 1, 16)
end
