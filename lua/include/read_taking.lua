-- Reads what a reservation took of global limits: `i8 epoch  i8 remembered until  i8 counted whole until  I4 calls that
-- go by it  c16 fingerprint`, then the taking itself. Nothing where there is none, it is of another epoch, or its time
-- is over.
local function read_taking(raw, epoch, now)
  if not raw then
    return nil
  end
  local of_epoch, until_ms, whole_until, claims, fingerprint, _, _, line_count, at = struct.unpack('<i8i8i8I4c16i8I4B', raw)
  if of_epoch ~= epoch or now >= until_ms then
    return nil
  end
  local granted = { struct.unpack('<' .. string.rep('i8', line_count), raw, at) }
  granted[line_count + 1] = nil
  return {
    until_ms = until_ms, whole_until = whole_until, claims = claims, fingerprint = fingerprint, granted = granted, rest = string.sub(raw, 29),
  }
end
