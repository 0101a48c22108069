-- include statuses
-- include states
-- include kinds
-- include prelude
-- include plain/totals
-- include plain/places
-- include plain/subjects
-- include plain/settle
-- What nearly every consume is: the final one of an open reservation, in time and never cut, of counters of the calendar whose hashes are warm.
-- Nothing where it is anything else: then nothing is written, and the script below decides.
local function plain_consume()
  if ARGV[9] ~= '1' then
    return nil
  end
  -- read
  local real, now, facts, alarm = prelude(ARGV[3])
  if alarm then
    return alarm
  end
  local call, pack, reservation, epoch_text = redis.call, struct.pack, KEYS[3], ARGV[1]
  local raw, epoch = call('GET', reservation), tonumber(epoch_text)
  if not raw or real > tonumber(ARGV[2]) or (real > now and real or now) < tonumber(facts[3] or 0) then
    return nil
  end
  local layout, state, line_count, flags, step, of_epoch, expires_at, born_at, latest, before = struct.unpack('<BBBBI4i8i8i8i8i8', raw)
  local is_degraded = flags == 4
  if layout ~= 1 or state ~= STATE_RESERVED or (flags ~= 0 and not is_degraded) or of_epoch ~= epoch then
    return nil
  end
  local body_at = 49 + 16 * line_count
  local core_length, tenant, rules_at = struct.unpack('<I2Bc0', raw, body_at + 16)
  if ARGV[5] ~= '' and ARGV[5] ~= tenant then
    return nil
  end
  local freed, used, units, places_at = plain_totals(raw, line_count, rules_at)
  if not freed then
    return nil
  end
  local list, count, wanted, asked_count, subjects, tail_at = plain_places(raw, places_at, tenant, freed, used)
  if not list then
    return nil
  end
  local values = call(unpack(wanted, 1, asked_count))
  local header = values[1]
  -- Behind 40 bytes a header lists counters that may count the record though it does not name them.
  if not header or #header > 40 or struct.unpack('<i8', header) ~= epoch or (subjects and not plain_subjects(subjects, epoch)) then
    return nil
  end
  -- check
  local writes, written, readings = plain_settle(list, count, wanted[2], values, subjects, now)
  if not writes then
    return nil
  end
  -- write
  flags = (is_degraded or ARGV[10] == '1') and 4 or 0
  local format = line_count == 1 and 'BBBBI4i8i8i8i8i8i8i8' or 'BBBBI4i8i8i8i8i8' .. string.rep('i8i8', line_count)
  local id = call('XADD', KEYS[2], epoch_text .. '-*', 'e', pack('<BBi8c0B' .. format, 1, EVENT_CONSUME, now, ARGV[4], 1,
    1, STATE_CONSUMED, line_count, flags, step + 1, epoch, expires_at, born_at, latest, before, unpack(units, 1, 2 * line_count)))
  units[2 * line_count + 1] = string.sub(raw, body_at, body_at + core_length - 1)
  local stored = pack('<' .. format .. 'c0', 1, STATE_CONSUMED, line_count, flags, step + 1, epoch, expires_at, born_at, latest,
    tonumber(string.sub(id, #epoch_text + 2)), unpack(units, 1, 2 * line_count + 1))
  call('SET', reservation, stored, 'PX', string.byte(raw, tail_at + 1) == 1 and ARGV[7] or ARGV[8])
  if written > 2 then
    call(unpack(writes, 1, written))
  end
  if subjects then
    for _, told in pairs(subjects) do
      if told.writes[3] then
        call(unpack(told.writes))
      end
    end
  end
  return { DONE, real, now, id, raw, stored, readings }
end
