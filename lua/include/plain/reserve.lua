-- include statuses
-- include states
-- include modes
-- include prelude
-- include keys/prefix
-- include due_list
-- include hash_end
-- include plain/checks
-- include plain/subjects
-- include plain/load
-- include plain/hold
-- include kinds
-- What nearly every reserve is: new and in time, all of it or nothing, of counters of the calendar whose hashes are warm and whose windows are
-- current. Nothing where it is anything else: then nothing is written, and the script below decides; and what plain_refusal takes, where a
-- counter has no room for one line.
local function plain_reserve()
  -- read
  local real, now, facts, alarm = prelude(ARGV[3])
  if alarm then
    return alarm
  end
  local call, pack, packed, reservation, epoch_text = redis.call, struct.pack, ARGV[5], KEYS[3], ARGV[1]
  local mode, flags, ttl, max_life, valid_from, valid_until, windows_end, tombstone, due_ms, line_count, at =
    struct.unpack('<BBi8i8i8i8i8i8i8B', packed)
  local is_usage = mode == USAGE
  if (mode ~= ALL_OR_NOTHING and not is_usage) or now < valid_from or now >= valid_until or real > tonumber(ARGV[2])
    or (real > now and real or now) < tonumber(facts[3] or 0) or call('GET', reservation) then
    return nil
  end
  local first = struct.unpack('<i8', packed, at)
  local amounts = line_count == 1 and { first } or { struct.unpack('<' .. string.rep('i8', line_count), packed, at) }
  local expires_at = is_usage and now or now + (ttl < max_life and ttl or max_life)
  local due = due_list(key_prefix(), expires_at, due_ms, tonumber(facts[2]))
  local list, count, wanted, asked_count, subjects = plain_checks(packed, at + 8 * line_count, amounts)
  if not list then
    return nil
  end
  local values, epoch = call(unpack(wanted, 1, asked_count)), tonumber(epoch_text)
  if not values[1] then
    return nil
  end
  local of_epoch, _, ask_until = struct.unpack('<i8i8i8', values[1])
  local may_be_old = flags == 1 and now < ask_until or flags == 5
  if of_epoch ~= epoch or may_be_old then
    return nil
  end
  local lives_until = ARGV[3] == '' and subjects and hash_end(math.max(windows_end, expires_at), now)
  if subjects and not plain_subjects(subjects, epoch, lives_until) then
    return nil
  end
  -- check
  local is_known, fits = plain_load(list, count, values, subjects, now)
  if not is_known or not fits then
    return nil, is_known and line_count == 1 and { list = list, count = count, amount = first, real = real, now = now }
  end
  -- write
  local latest, state, body = is_usage and now or now + max_life, is_usage and STATE_CONSUMED or STATE_RESERVED, ARGV[6]
  local event_format, record_format, units = '<BBi8c0BBBBBI4i8i8i8i8i8i8i8c0', '<BBBBI4i8i8i8i8i8i8i8c0', { first, 0, body }
  if line_count > 1 then
    local lines = string.rep('i8i8', line_count) .. 'c0'
    event_format, record_format = '<BBi8c0BBBBBI4i8i8i8i8i8' .. lines, '<BBBBI4i8i8i8i8i8' .. lines
  end
  for line = 1, line_count do
    units[2 * line - 1], units[2 * line] = is_usage and 0 or amounts[line], is_usage and amounts[line] or 0
  end
  units[2 * line_count + 1] = body
  local id = call('XADD', KEYS[2], epoch_text .. '-*', 'e', pack(event_format, 1, is_usage and EVENT_USAGE or EVENT_RESERVE, now, ARGV[4], 0,
    1, state, line_count, 0, 1, epoch, expires_at, now, latest, 0, unpack(units)))
  local sequence = tonumber(string.sub(id, #epoch_text + 2))
  if is_usage then
    units[2 * line_count + 1] = string.sub(body, 1, struct.unpack('<I2', body, 17))
    call('SET', reservation, pack(record_format, 1, state, line_count, 0, 1, epoch, expires_at, now, latest, sequence, unpack(units)), 'PX', tombstone)
  else
    call('SET', reservation, pack(record_format, 1, state, line_count, 0, 1, epoch, expires_at, now, latest, sequence, unpack(units)))
    call('RPUSH', due, string.sub(reservation, -32))
  end
  local readings = plain_hold(list, count, subjects, expires_at, is_usage)
  return { DONE, real, now, id, expires_at, line_count == 1 and pack('<i8', first) or pack('<' .. string.rep('i8', line_count), unpack(amounts)), readings }
end
