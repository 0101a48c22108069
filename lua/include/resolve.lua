-- Loads the reservation a call is about; nothing when it is unknown, of another epoch, or another tenant's.
local function load_record(key, epoch, bound)
  local packed = redis.call('GET', key)
  if not packed then
    return nil
  end
  local record = read_record(packed)
  if record.epoch ~= epoch then
    return nil
  end
  read_core(record)
  if bound ~= '' and bound ~= record.tenant then
    return nil
  end
  return record
end

-- Reads the counters a whole record moved. Each place learns its figures and whether its window is still current.
local function read_moved(record, prefix, epoch, now)
  read_places(record)
  record.states = { [0] = prefix .. record.tenant }
  for subject, hash in ipairs(record.subjects) do
    record.states[subject] = record.states[0] .. ':' .. hash
  end
  local seen = { tenant_cold = 0, cold_holders = {}, cold_counters = {} }
  local wanted = {}
  for holder = 0, #record.subjects do
    wanted[holder] = { 'HMGET', record.states[holder], 'h' }
  end
  for _, place in ipairs(record.places) do
    local fields = wanted[place.holder]
    fields[#fields + 1] = place.field
    place.at = #fields - 2
    if place.capacity == -2 then
      fields[#fields + 1] = 'q' .. place.field
    end
  end
  local values = {}
  for holder = 0, #record.subjects do
    values[holder] = redis.call(unpack(wanted[holder]))
    local header = values[holder][1]
    if not header or struct.unpack('<i8', header) ~= epoch then
      if holder == 0 then
        seen.tenant_cold = 1
      else
        seen.cold_holders[#seen.cold_holders + 1] = string.char(holder)
      end
    end
  end
  for index, place in ipairs(record.places) do
    local value = values[place.holder][place.at]
    place.current, place.consumed, place.reserved, place.next_end = false, 0, 0, 0
    if value then
      local start, consumed, reserved, next_end = struct.unpack('<i8i8i8i8', value)
      if start == place.start then
        place.current, place.consumed, place.reserved, place.next_end = true, consumed, reserved, next_end
      end
    end
    if place.capacity == -2 and place.current and now < place.finish then
      place.limit = quota_capacity(values[place.holder][place.at + 1], now)
      if not place.limit then
        seen.cold_counters[#seen.cold_counters + 1] = string.char(index - 1)
      end
    elseif place.capacity then
      place.limit = place.capacity
    end
  end
  seen.cold = seen.tenant_cold == 1 or #seen.cold_holders > 0
  return seen
end

-- What a line still holds, given its state and total.
local function outstanding(state, held, consumed)
  if state ~= 1 then
    return 0
  end
  return math.max(0, held - consumed)
end

-- Moves the counters from what the record was to what it becomes; fails before any write if one would go below zero.
local function plan_moves(record, state, consumed, expires)
  for _, place in ipairs(record.places) do
    if place.current then
      local more, freed = 0, 0
      for _, pair in ipairs(place) do
        local line = pair.line
        more = more + (consumed[line] - record.consumed[line]) * pair.weight
        freed = freed + (outstanding(record.state, record.held[line], record.consumed[line])
          - outstanding(state, record.held[line], consumed[line])) * pair.weight
      end
      place.consumed, place.reserved = place.consumed + more, place.reserved - freed
      if place.reserved < 0 or place.consumed < 0 then
        return false
      end
      if place.next_end == record.expires then
        place.next_end = state == 1 and expires or 0
      end
      place.moved = true
    end
  end
  return true
end

local function write_moves(record)
  local writes = {}
  for _, place in ipairs(record.places) do
    if place.moved then
      local write = writes[place.holder]
      if not write then
        write = { 'HSET', record.states[place.holder] }
        writes[place.holder] = write
      end
      write[#write + 1] = place.field
      write[#write + 1] = struct.pack('<i8i8i8i8', place.start, place.consumed, place.reserved, place.next_end)
    end
  end
  for _, write in pairs(writes) do
    redis.call(unpack(write))
  end
end

-- Packs amounts as lines of i8.
local function pack_amounts(amounts, count)
  local parts = {}
  for line = 1, count do
    parts[line] = struct.pack('<i8', amounts[line])
  end
  return table.concat(parts)
end

-- The totals a call names: kind 0 none, 1 one for the only line, 2 by meter; each as mantissa and scale, because only the
-- record knows the decimals. `otherwise` gives a line's total where none is named. Returns totals, or a status and detail.
local function read_totals(record, packed, otherwise)
  local kind, count, at = struct.unpack('<BB', packed)
  local totals = {}
  for line = 1, record.count do
    totals[line] = otherwise(line)
  end
  if kind == 0 then
    return totals
  end
  if kind == 1 and record.count ~= 1 then
    return nil, AMOUNT_NEEDS_ONE_LINE, 0
  end
  for _ = 1, count do
    local meter, mantissa, scale
    meter, mantissa, scale, at = struct.unpack('<Bc0i8B', packed, at)
    local found
    for line = 1, record.count do
      if kind == 1 or record.lines[line].meter == meter then
        found = line
      end
    end
    if not found then
      return nil, METER_NOT_RESERVED, meter
    end
    local decimals = record.lines[found].decimals
    if scale > decimals then
      return nil, TOO_PRECISE, found - 1
    end
    local units = mantissa * 10 ^ (decimals - scale)
    if units > 9e15 then
      return nil, TOO_LARGE, found - 1
    end
    totals[found] = units
  end
  return totals
end
