-- Totals per line; a line not named gets fallback(line, whether any was named). A total that cannot be read is a
-- failure { status, line from 0, meter }: the first in order of precedence.
local function read_totals(blob, record, fallback)
  local count, at = struct.unpack('<B', blob)
  local totals, failure = {}, nil
  local function fail(status, line, meter)
    if not failure or status < failure.status then
      failure = { status = status, line = line, meter = meter }
    end
  end
  for _ = 1, count do
    local meter, mantissa, scale
    meter, mantissa, scale, at = struct.unpack('<Bc0i8B', blob, at)
    local line
    for number, rule in ipairs(record.lines) do
      if rule.meter == meter or (meter == '' and record.count == 1) then
        line = number
        break
      end
    end
    if not line then
      fail(meter == '' and AMOUNT_NEEDS_ONE_LINE or METER_NOT_RESERVED, 0, meter)
    elseif scale > record.lines[line].decimals then
      fail(TOO_PRECISE, line - 1, meter)
    else
      totals[line] = mantissa * 10 ^ (record.lines[line].decimals - scale)
      if totals[line] > 9e15 then
        fail(TOO_LARGE, line - 1, meter)
      end
    end
  end
  for line = 1, record.count do
    totals[line] = totals[line] or fallback(line, count > 0)
  end
  return totals, failure, count > 0
end
