-- Reads a record's tenant and line rules, and what a tombstone no longer has: subjects, counters, whether it was keyed.
local function read_body(record)
  local body = record.body
  local core_length, tenant, at = struct.unpack('<I2Bc0', body, 17)
  record.tenant, record.core_length, record.lines = tenant, core_length, {}
  for line = 1, record.count do
    local meter, decimals, rules, late_within
    meter, decimals, rules, late_within, at = struct.unpack('<Bc0BBI4', body, at)
    record.lines[line] = {
      meter = meter, decimals = decimals, late_within = late_within,
      caps = rules % 4 == 1, rejects_excess = rules % 4 == 2, rejects_late = rules >= 4,
    }
  end
  record.subjects, record.counters = {}, {}
  if at > #body then
    return
  end
  local subjects, counters
  subjects, at = struct.unpack('<B', body, at)
  for number = 1, subjects do
    record.subjects[number], at = struct.unpack('<c13', body, at)
  end
  counters, at = struct.unpack('<B', body, at)
  for number = 1, counters do
    local counter = { weights = {} }
    local shape
    counter.holder, counter.field, counter.window, shape, at = struct.unpack('<Bc8i8B', body, at)
    if shape >= 32 then
      counter.window_end, counter.cap, at = struct.unpack('<i8i8', body, at)
    end
    local weighted = shape % 32 >= 16
    for _ = 1, shape % 16 do
      local line
      local weight = 1
      line, at = struct.unpack('<B', body, at)
      if weighted then
        weight, at = struct.unpack('<i8', body, at)
      end
      counter.weights[line + 1] = weight
    end
    if counter.holder == 0 then
      counter.quota = 'q' .. counter.field
    end
    record.counters[number] = counter
  end
  record.keyed = string.byte(body, at + 1) == 1
end
