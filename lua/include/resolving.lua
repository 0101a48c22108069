-- include statuses
-- include states
-- include kinds
-- include before_floor
-- include last_id
-- include append
-- include sequence_of
-- include read_record
-- include read_body
-- include measure_record
-- include cold_record
-- include record_values
-- include pack_event
-- include pack_readings
-- include write_counters
-- include store
-- include read_totals
-- include partition
-- What consume, release and extend read next: the reservation as far as the caller may know it, its state hashes.
local record = read_record(redis.call('GET', reservation), epoch)
if record then
  read_body(record)
end
if not record or (ARGV[5] ~= '' and ARGV[5] ~= record.tenant) then
  return { UNKNOWN, real, now, last_id(outbox) }
end
local holders = measure_record(prefix, record, epoch, now)
local cold = cold_record(holders, record)
local function about_record(status, line, meter)
  return { status, real, now, '', record.raw, line or 0, meter or '' }
end
local function is_current(counter)
  return counter.current
end
local function unchanged()
  return { REPLAYED, real, now, '', record.raw, pack_readings(record.counters, is_current, record.named) }
end
local function about_cold(counters)
  local holders_cold = cold or { tenant = 0, holders = '' }
  return { COLD, real, now, last_id(outbox), record.raw, holders_cold.tenant, holders_cold.holders, counters }
end
-- Appends the event of what the record has become, stores that, and answers with it.
local function write(kind, flags, keyed_ms, unkeyed_ms)
  local values, format = record_values(record)
  local id = append(outbox, ARGV[1], pack_event(kind, now, ARGV[4], flags, values, format, ''))
  record.sequence = sequence_of(id, ARGV[1])
  local stored = store(reservation, record, values, format, keyed_ms, unkeyed_ms)
  write_counters(holders, record.counters)
  return { DONE, real, now, id, record.raw, stored, pack_readings(record.counters, is_current, record.named) }
end
