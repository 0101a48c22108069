-- include statuses
-- include is_current
-- include pack_readings
-- The answer to a repeat, and to a call that changes nothing.
local function unchanged(call)
  local record = call.record
  return { REPLAYED, call.real, call.now, '', record.raw, pack_readings(record.counters, is_current, record.named) }
end
