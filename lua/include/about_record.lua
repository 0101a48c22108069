-- The answer that rejects a call with this status, about its reservation.
local function about_record(call, status, line, meter)
  return { status, call.real, call.now, '', call.record.raw, line or 0, meter or '' }
end
