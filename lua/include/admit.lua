-- include states
-- include kinds
-- include append
-- include sequence_of
-- include record_values
-- include pack_event
-- include pack_record
-- include keep_subjects
-- include write_counters
-- include cell
-- Appends the event of a new record (with its id and body), stores the record, and writes the counters as they are in
-- memory. No window of theirs ends after `windows_end`. `taken_at` is the event's time. Returns the event's id.
local function admit(record, due, tombstone, holders, checks, windows_end, now, taken_at)
  local reservation, body = KEYS[3], record.body
  local is_usage = record.state == STATE_CONSUMED
  local values, format = record_values(record)
  local kind = is_usage and EVENT_USAGE or EVENT_RESERVE
  local id = append(KEYS[2], ARGV[1], pack_event(kind, taken_at, record.id, 0, values, format, body))
  local sequence = sequence_of(id, ARGV[1])
  if is_usage then
    local core = string.sub(body, 1, struct.unpack('<I2', body, 17))
    redis.call('SET', reservation, pack_record(values, format, sequence, core), 'PX', tombstone)
  else
    redis.call('SET', reservation, pack_record(values, format, sequence, body))
    redis.call('RPUSH', due, string.sub(reservation, -32))
  end
  for number = 1, #checks do
    local check = checks[number]
    -- What refuses nothing may hold more than its capacity, and takes longer to forget it.
    if check.moved and check.capacity and not cell.is_bounded(check.capacity) then
      windows_end = math.max(windows_end, check.algorithm.resets_at(check))
    end
  end
  keep_subjects(holders, record.epoch, math.max(windows_end, record.expires_at), now, ARGV[3] == '')
  write_counters(holders, checks, ARGV[3] == '')
  return id
end
