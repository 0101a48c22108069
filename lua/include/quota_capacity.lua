-- A quota's capacity at this time, and whether it is only a bound: what fits under it is allowed, and of what does not
-- the ledger is asked first. Nothing when it is missing, has not begun, or is no longer valid.
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
  if not capacity or now >= struct.unpack('<i8', raw, at) then
    return nil
  end
  if capacity < 0 then
    return -1 - capacity, true
  end
  return capacity, false
end
