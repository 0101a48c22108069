-- A quota's capacity at this time; nothing when it is missing, has not begun, or is no longer valid.
local function quota_capacity(raw, now)
  if not raw then
    return nil
  end
  local _, count, at = struct.unpack('<i8B', raw)
  local capacity, from, amount
  for _ = 1, count do
    from, amount, at = struct.unpack('<i8i8', raw, at)
    if from <= now then
      capacity = amount
    end
  end
  return now < struct.unpack('<i8', raw, at) and capacity or nil
end
