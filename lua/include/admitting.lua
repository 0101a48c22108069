-- include statuses
-- include states
-- include kinds
-- include before_floor
-- include last_id
-- include append
-- include sequence_of
-- include due_key
-- include read_record
-- include read_checks
-- include measure
-- include record_values
-- include pack_event
-- include pack_record
-- include write_counters
-- include keep_subjects
-- include partition
-- What reserve and record read next: what there is of the reservation.
local existing = read_record(redis.call('GET', reservation), epoch)
-- Whether what there is came from a call of the same meaning, to the byte.
local function is_same_call()
  return string.sub(existing.raw, existing.body_at, existing.body_at + 15) == string.sub(ARGV[6], 1, 16)
end
-- Reads the state hashes that stand behind the first three keys.
local function measure_checks(checks)
  local keys = {}
  for number = 4, #KEYS do
    keys[number - 3] = KEYS[number]
  end
  return measure(keys, checks, epoch, now)
end
-- The list in which a hold of this expiry will be due. It is read, as all that is written later.
local function find_due(expires_at, due_ms)
  local due = due_key(prefix, expires_at, due_ms, tonumber(found[2]))
  redis.call('LLEN', due)
  return due
end
-- Appends the event of a new record, stores that and the counters as they stand in memory, of windows that end by then.
-- Returns the event's id.
local function admit(record, due, tombstone, holders, checks, windows_end)
  local is_usage = record.state == STATE_CONSUMED
  local values, format = record_values(record)
  local kind = is_usage and EVENT_USAGE or EVENT_RESERVE
  local id = append(outbox, ARGV[1], pack_event(kind, record.born_at, ARGV[4], 0, values, format, ARGV[6]))
  local sequence = sequence_of(id, ARGV[1])
  if is_usage then
    local core = string.sub(ARGV[6], 1, struct.unpack('<I2', ARGV[6], 17))
    redis.call('SET', reservation, pack_record(values, format, sequence, core), 'PX', tombstone)
  else
    redis.call('SET', reservation, pack_record(values, format, sequence, ARGV[6]))
    redis.call('RPUSH', due, string.sub(reservation, -32))
  end
  keep_subjects(holders, epoch, math.max(windows_end, record.expires_at), now, ARGV[3] == '')
  write_counters(holders, checks)
  return id
end
