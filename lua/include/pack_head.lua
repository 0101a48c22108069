-- Packs head and lines of a record.
local function pack_head(record)
  local flags = (record.late and 1 or 0) + (record.capped and 2 or 0) + (record.degraded and 4 or 0)
  local parts = {
    struct.pack('<BBBBI4i8i8i8i8i8', 1, record.state, record.count, flags, record.step, record.epoch,
      record.expires_at, record.born_at, record.latest_expiry, record.sequence),
  }
  for line = 1, record.count do
    parts[line + 1] = struct.pack('<i8i8', record.held[line], record.consumed[line])
  end
  return table.concat(parts)
end
