-- include statuses
-- include states
-- include kinds
-- include keys/prefix
-- include keys/tenant
-- include hash_end
-- include fixed_end
-- include quota_capacity
-- include plain/counters
-- include plain/totals
-- include plain/places
-- include plain/hashes
-- include plain/slot
-- The plain path of nearly every consume: the final one of an open reservation, in time and never cut. Its counters
-- count by the calendar, by fixed windows or are sliding counters without a new slot, each one line without weight, and
-- their hashes are warm. Answers each counter's cell as it is written, '' where that has moved on, then the number and
-- the capacity of each quota. Any other call gets nothing, and nothing is written.
local function plain_consume(real, now, facts)
  local call, unpack_from, pack, byte, reservation, epoch_text = redis.call, struct.unpack, struct.pack, string.byte, KEYS[3], ARGV[1]
  -- read
  local raw, epoch, floor = call('GET', reservation), tonumber(epoch_text), facts[3]
  if not raw or real > tonumber(ARGV[2]) or (floor and (real > now and real or now) < tonumber(floor)) then
    return nil
  end
  local layout, state, line_count, flags, step, of_epoch = unpack_from('<BBBBI4i8', raw)
  local is_degraded = flags == 4
  if layout > 2 or state ~= STATE_RESERVED or (flags ~= 0 and not is_degraded) or of_epoch ~= epoch then
    return nil
  end
  local body_at = 49 + 16 * line_count
  local core_length, tenant, rules_at = unpack_from('<I2Bc0', raw, body_at + 16)
  if ARGV[5] ~= '' and ARGV[5] ~= tenant then
    return nil
  end
  local freed, used, lines, subjects_at = plain_totals(raw, line_count, rules_at)
  if not freed then
    return nil
  end
  local counters_at = subjects_at + 1 + 13 * byte(raw, subjects_at)
  local count, places, codes, parameters, tail_at = byte(raw, counters_at), nil, {}, nil, nil
  if layout == 2 then
    places, codes, parameters, tail_at = plain_counters(raw, counters_at)
    if not places then
      return nil
    end
  else
    -- By counter: scope, field, window's start, flags and line.
    places, tail_at = { unpack_from('<' .. string.rep('Bc8i8BB', count), raw, counters_at + 1) }, counters_at + 1 + 19 * count
  end
  -- A record of an older version does not say which counters are quotas: each may be.
  local marks = byte(raw, -1) == 128 and unpack_from('<I4', raw, #raw - 4) or 4294967295
  local state_key, of_subjects, told, hashes = tenant_key(key_prefix(), tenant), false, nil, nil
  -- The table has room from the start: one that grows is copied.
  local wanted, last, capacity_at = { 'HMGET', state_key, 'h', unpack(places, 1, count) }, 3 + count, {}
  for number = 1, count do
    local place = 5 * number
    if places[place - 1] ~= 1 then
      return nil
    end
    wanted[3 + number] = places[place - 3]
    if marks > 0 and math.floor(marks / 2 ^ (number - 1)) % 2 == 1 then
      last = last + 1
      wanted[last], capacity_at[number] = 'q' .. places[place - 3], last - 2
    end
    of_subjects = of_subjects or places[place - 4] > 0
  end
  if of_subjects then
    wanted, capacity_at = plain_places(raw, subjects_at + 1, tenant, places, count, capacity_at)
    hashes = plain_hashes(wanted, epoch)
    if not hashes then
      return nil
    end
    told = hashes[0].told
  else
    told = call(unpack(wanted, 1, last))
  end
  local header = told[1]
  if not header or unpack_from('<i8', header) ~= epoch then
    return nil
  end
  local born_at, by_redis_clock = unpack_from('<i8', raw, 25), ARGV[3] == '' or ARGV[10] == '1'
  -- After 40 bytes a header lists counters that were created inside their window. They count a record that does not
  -- name them if it was made before their restore. Those of subjects are not looked up here.
  if #header > 40 then
    local listed_at = 42
    if byte(header, 41) ~= 0 then
      return nil
    end
    while listed_at <= #header do
      local told_at, length = unpack_from('<i8I4', header, listed_at)
      if born_at <= told_at then
        return nil
      end
      listed_at = listed_at + 12 + length
    end
  end
  -- check
  local writes, written = { 'HSET', state_key, unpack(places, 1, 2 * count) }, 2
  local answer, told_last = { DONE, real, now, '', raw, '', '', unpack(told, 1, count) }, 7 + count
  for number = 1, count do
    local place, cell, hash = 5 * number, told[number + 1], nil
    if hashes then
      hash = hashes[places[place - 4]]
      hash.met = hash.met + 1
      cell = hash.told[hash.met + 1]
    end
    if not cell then
      return nil
    end
    local line, mark, consumed, reserved, next_end = places[place] + 1, unpack_from('<i8i8i8i8', cell)
    local is_current, ends_at, slot_at = mark == places[place - 2], nil, nil
    if codes[number] == FIXED_WINDOW then
      ends_at = fixed_end(mark, parameters[2 * number - 1], parameters[2 * number])
      is_current = born_at >= mark and born_at < ends_at
    elseif codes[number] then
      local slot_ms, slots = parameters[2 * number - 1], parameters[2 * number]
      local slot = math.floor(born_at / slot_ms)
      if math.floor(now / slot_ms) ~= mark then
        return nil
      end
      ends_at, slot_at = (mark + slots) * slot_ms, 41 + 16 * (slot % slots)
      -- One that no longer counts the work still shows what it counts.
      if born_at < unpack_from('<i8', cell, 33) or slot <= mark - slots then
        return nil
      end
      is_current = true
    end
    if not is_current then
      cell = ''
    else
      consumed, reserved = consumed + used[line], reserved - freed[line]
      if reserved < 0 or consumed > 9e15 then
        return nil
      end
      local front = pack('<i8i8i8i8', mark, consumed, reserved, reserved == 0 and 0 or next_end)
      cell = slot_at and plain_slot(front, cell, slot_at, used[line], -freed[line]) or not slot_at and front
      if not cell then
        return nil
      end
      if hash then
        -- A subject's hash that must live longer is left to the script.
        if ends_at and by_redis_clock and places[place - 4] > 0 then
          header = hash.told[1]
          if #header < 40 or hash_end(ends_at, now) > unpack_from('<i8', header, 33) then
            return nil
          end
        end
        local list = hash.writes
        list[#list + 1] = places[place - 3]
        list[#list + 1] = cell
      else
        writes[written + 1], writes[written + 2] = places[place - 3], cell
        written = written + 2
      end
    end
    answer[7 + number] = cell
    local capacity = capacity_at[number] and quota_capacity(told[capacity_at[number]], now)
    if capacity then
      answer[told_last + 1], answer[told_last + 2] = number - 1, capacity
      told_last = told_last + 2
    end
  end
  -- write
  flags = (is_degraded or ARGV[10] ~= '0') and 4 or 0
  local head = string.sub(raw, 9, 40)
  local id = call('XADD', KEYS[2], epoch_text .. '-*', 'e', pack('<BBi8c0BBBBBI4c0c0c0', 1, EVENT_CONSUME, now, ARGV[4], 1,
    layout, STATE_CONSUMED, line_count, flags, step + 1, head, string.sub(raw, 41, 48), lines))
  local stored = pack('<BBBBI4c0i8c0c0', layout, STATE_CONSUMED, line_count, flags, step + 1, head, tonumber(string.sub(id, #epoch_text + 2)), lines,
    string.sub(raw, body_at, body_at + core_length - 1))
  local is_keyed = byte(raw, tail_at + 1) == 1
  call('SET', reservation, stored, 'PX', is_keyed and ARGV[7] or ARGV[8])
  if written > 2 then
    call(unpack(writes, 1, written))
  end
  for _, hash in pairs(hashes or {}) do
    if hash.writes[3] then
      call(unpack(hash.writes))
    end
  end
  answer[4], answer[6] = id, stored
  return answer
end
