-- Reads counters of a tenant and its subjects: one HMGET per hash. `keys` are the state keys by holder (from 0),
-- `checks` packed per counter: B holder, c8 field, i8 window start, B class, i8 since, i8 capacity (-2: the quota's),
-- B pairs, per pair B line i8 weight. Says what is cold and whether a field holds a later window.
local function read_checks(packed)
  local checks, at, length = {}, 1, string.len(packed)
  while at <= length do
    local check, pair_count = {}, nil
    check.holder, check.field, check.start, check.class, check.since, check.capacity, pair_count, at =
      struct.unpack('<Bc8i8Bi8i8B', packed, at)
    for pair = 1, pair_count do
      local line, weight
      line, weight, at = struct.unpack('<Bi8', packed, at)
      check[pair] = { line = line + 1, weight = weight }
    end
    checks[#checks + 1] = check
  end
  return checks
end

-- The capacity of a packed quota capacity at `now`, or nothing past its last boundary.
local function quota_capacity(packed, now)
  if not packed then
    return nil
  end
  local _, count, at = struct.unpack('<i8B', packed)
  local capacity
  for _ = 1, count do
    local from, amount
    from, amount, at = struct.unpack('<i8i8', packed, at)
    if from <= now then
      capacity = amount
    end
  end
  if now >= struct.unpack('<i8', packed, at) then
    return nil
  end
  return capacity
end

local function read_counters(keys, holders, checks, epoch, now)
  local seen = { warm = {}, restored = {}, ask_until = 0, cold_holders = {}, cold_counters = {}, tenant_cold = 0 }
  local wanted = {}
  for holder = 0, holders do
    wanted[holder] = { 'HMGET', keys[holder], 'h' }
  end
  for _, check in ipairs(checks) do
    local fields = wanted[check.holder]
    fields[#fields + 1] = check.field
    check.at = #fields - 2
    if check.capacity == -2 then
      fields[#fields + 1] = 'q' .. check.field
    end
  end
  local values = {}
  for holder = 0, holders do
    values[holder] = redis.call(unpack(wanted[holder]))
    local header = values[holder][1]
    local built, restored, ask_until
    if header then
      built, restored, ask_until = struct.unpack('<i8i8i8', header)
    end
    seen.warm[holder] = built == epoch
    seen.restored[holder] = restored or 0
    if not seen.warm[holder] then
      if holder == 0 then
        seen.tenant_cold = 1
      else
        seen.cold_holders[#seen.cold_holders + 1] = string.char(holder)
      end
    elseif holder == 0 then
      seen.ask_until = ask_until
    end
  end
  for index, check in ipairs(checks) do
    local value = values[check.holder][check.at]
    check.consumed, check.reserved, check.next_end, check.current = 0, 0, 0, true
    if seen.warm[check.holder] then
      if value then
        local start, consumed, reserved, next_end = struct.unpack('<i8i8i8i8', value)
        if start == check.start then
          check.consumed, check.reserved, check.next_end = consumed, reserved, next_end
        elseif start > check.start then
          seen.stale, check.current = true, false
        end
      elseif check.class == 0 and check.start < math.max(seen.restored[check.holder], check.since) then
        seen.cold_counters[#seen.cold_counters + 1] = string.char(index - 1)
        check.current = false
      end
      if check.capacity == -2 then
        check.limit = quota_capacity(values[check.holder][check.at + 1], now)
        if not check.limit and check.current then
          seen.cold_counters[#seen.cold_counters + 1] = string.char(index - 1)
          check.current = false
        end
      else
        check.limit = check.capacity
      end
    else
      check.current = false
    end
  end
  seen.cold = seen.tenant_cold == 1 or #seen.cold_holders > 0 or #seen.cold_counters > 0
  return seen
end

-- Packs readings: per counter i8 consumed, i8 reserved, i8 capacity (-1: not known), i8 next end (0: none), B current.
local function pack_readings(checks)
  local parts = {}
  for index, check in ipairs(checks) do
    local next_end = check.reserved > 0 and check.next_end or 0
    parts[index] = struct.pack('<i8i8i8i8B', check.consumed, check.reserved, check.limit or -1, next_end,
      check.current and 1 or 0)
  end
  return table.concat(parts)
end
