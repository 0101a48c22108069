-- include statuses
-- include states
-- include kinds
-- include modes
-- include algorithm_codes
-- include hash_end
-- include fixed_end
-- include quota_capacity
-- include plain/slot
-- include plain/wanted
-- include plain/hashes
-- The plain path of nearly every reserve: new and in time, all or nothing. Its counters count by the calendar, by fixed
-- windows or are sliding counters, their hashes are warm and have them, no window of the calendar is over, no slot is
-- new, and no clock went back. Its keys begin at `key` (reservation, due list, states), its arguments at `argument`
-- (head, call, body). Answers each counter's cell, as it is written or as it refuses, then the capacities of quotas.
-- Any other call gets nothing, and nothing is written.
local function plain_reserve(real, now, facts, key, argument)
  local packed = ARGV[argument + 1]
  if string.byte(packed) < 8 then
    return nil
  end
  -- read
  local call, unpack_from, pack, epoch_text, reservation = redis.call, struct.unpack, struct.pack, ARGV[1], KEYS[key]
  local flags, mode, line_count, life, longest_life, valid_from, valid_until, windows_end, tombstone, due_ms, bucket, count, quota_count, of_subjects, at =
    unpack_from('<BBBi8i8i8i8i8i8i8i8BBB', packed)
  local expires_at, swept, floor = now + life, tonumber(facts[2]), facts[3]
  if now < valid_from or now >= valid_until or real > tonumber(ARGV[2]) or (floor and (real > now and real or now) < tonumber(floor))
    or math.ceil(expires_at / due_ms) ~= bucket or bucket <= swept or call('GET', reservation) then
    return nil
  end
  call('LLEN', KEYS[key + 1])
  local epoch, asked, told, hashes = tonumber(epoch_text), nil, nil, nil
  local fields = string.rep('c8', count) .. string.rep('c9', quota_count)
  if of_subjects == 0 then
    asked = { 'HMGET', KEYS[key + 2], 'h', unpack_from(fields, packed, at + count) }
    told = call(unpack(asked, 1, 3 + count + quota_count))
  else
    local lives_until = ARGV[3] == '' and hash_end(math.max(windows_end, expires_at), now)
    hashes = plain_hashes(plain_wanted(packed, at - 1, { unpack_from(fields, packed, at + count) }, count, key + 2), epoch, lives_until)
    if not hashes then
      return nil
    end
    asked, told = hashes[0].asked, hashes[0].told
  end
  if not told[1] then
    return nil
  end
  local of_epoch, _, ask_until = unpack_from('<i8i8i8', told[1])
  if of_epoch ~= epoch or (flags == 9 and now < ask_until) or flags == 13 then
    return nil
  end
  -- check
  local is_usage, refusing, scopes_at, quotas, of_tenant = mode == USAGE, '', at - 1, 0, count - of_subjects
  local names, cells, place, read = asked, told, 0, nil
  -- Both tables have room from the start: one that grows is copied.
  local writes, answer = { 'HSET', KEYS[key + 2], unpack(asked, 1, 2 * count) }, { DONE, real, now, '', expires_at, '', '', unpack(told, 1, count + quota_count) }
  local list = writes
  at = at + 9 * count + 9 * quota_count
  for number = 1, count do
    local capacity, need, code, began
    capacity, need, code, began, at = unpack_from('<i8i8Bi8', packed, at)
    place = number
    if hashes then
      local hash = hashes[string.byte(packed, scopes_at + number)]
      place = hash.met + 1
      hash.met, names, cells, list = place, hash.asked, hash.told, hash.writes
      read = read or {}
      read[number] = cells[place + 1]
    end
    local cell = cells[place + 1]
    if not cell then
      return nil
    end
    local mark, consumed, reserved, next_end = unpack_from('<i8i8i8i8', cell)
    local slot_at
    if code == CALENDAR then
      at = at + 8
    else
      -- What was read is the length of a fixed window, or of a slot. What refuses nothing may outlive its hash.
      local length, last = began, string.byte(packed, at)
      at, began = at + 1, mark
      if capacity >= 9e15 then
        return nil
      elseif code == SLIDING_COUNTER then
        if math.floor(now / length) ~= mark or now < unpack_from('<i8', cell, 33) then
          return nil
        end
        slot_at = 41 + 16 * (mark % last)
      elseif now < mark then
        return nil
      elseif now >= fixed_end(mark, length, last) then
        began = now
      end
    end
    if mark > began then
      return nil
    elseif mark < began then
      consumed, reserved, next_end = 0, 0, 0
    end
    local is_bound = false
    if capacity < 0 then
      quotas = quotas + 1
      capacity, is_bound = quota_capacity(told[1 + of_tenant + quotas], now)
      if not capacity then
        return nil
      end
      answer[7 + count + quotas] = capacity
    end
    if need > 0 and need > capacity - consumed - reserved then
      if is_bound then
        return nil
      end
      refusing = refusing .. string.char(number - 1)
    elseif is_usage then
      consumed = consumed + need
    elseif need > 0 then
      if reserved == 0 or expires_at < next_end then
        next_end = expires_at
      end
      reserved = reserved + need
    end
    local front = pack('<i8i8i8i8', began, consumed, reserved, next_end)
    cell = slot_at and plain_slot(front, cell, slot_at, is_usage and need or 0, is_usage and 0 or need) or front
    list[2 * place + 1], list[2 * place + 2], answer[7 + number] = names[place + 3], cell, cell
  end
  if refusing ~= '' then
    answer[1], answer[5], answer[7] = REFUSED, '', refusing
    for number = 1, count do
      answer[7 + number] = read and read[number] or told[number + 1]
    end
    return answer
  end
  -- write
  local front, body, latest = ARGV[argument], ARGV[argument + 2], now + longest_life
  local id = call('XADD', KEYS[2], epoch_text .. '-*', 'e',
    pack('<BBi8c0i8i8i8i8c0', 1, is_usage and EVENT_USAGE or EVENT_RESERVE, now, front, expires_at, now, latest, 0, body))
  local head, sequence = string.sub(front, 18), tonumber(string.sub(id, #epoch_text + 2))
  if is_usage then
    body = string.sub(body, 1, 16 * line_count + unpack_from('<I2', body, 16 * line_count + 17))
    call('SET', reservation, pack('<c0i8i8i8i8c0', head, expires_at, now, latest, sequence, body), 'PX', tombstone)
  else
    call('SET', reservation, pack('<c0i8i8i8i8c0', head, expires_at, now, latest, sequence, body))
    call('RPUSH', KEYS[key + 1], string.sub(reservation, -32))
  end
  if not hashes and count > 0 then
    call(unpack(writes, 1, 2 * count + 2))
  elseif hashes then
    for _, hash in pairs(hashes) do
      if hash.met > 0 then
        call(unpack(hash.writes))
      end
    end
  end
  answer[4] = id
  return answer
end
