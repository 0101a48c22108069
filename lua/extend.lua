#!lua
-- Moves a reservation's expiry to now + ttl if that is later, within its total life.
--
-- KEYS  1 meta  2 outbox  3 reservation
-- ARGV  1 epoch  2 not_after (real ms)  3 now (test clock, ms, or empty)  4 the caller's tenant, or empty  5 prefix of states
--       6 id (16 bytes)  7 id (hex)  8 ttl (ms)  9 prefix of due buckets  10 width of a due bucket (ms)
-- Returns {status, real time, now, …}: ALARM {epoch found} · UNKNOWN {last id} · REPLAYED, ALREADY_RESOLVED, EXPIRED {record,
--       readings} · COLD {last id, tenant cold, subjects, counters, record} · DONE {record, readings, sequence, totals before, ''}
-- Event extend (5)
-- include status
-- include clock
-- include last_id
-- include record
-- include counters
-- include outbox
-- include resolve
-- include due

-- read
local real, now = clock(ARGV[3])
local meta = redis.call('HMGET', KEYS[1], 'epoch', 'swept')
if meta[1] ~= ARGV[1] then
  return { ALARM, real, now, meta[1] or '' }
end
local epoch = tonumber(ARGV[1])
local record = load_record(KEYS[3], epoch, ARGV[4])
if not record then
  return { UNKNOWN, real, now, last_id(KEYS[2]) }
end
if record.state ~= 1 then
  return { record.state == 4 and EXPIRED or ALREADY_RESOLVED, real, now, record.packed, '' }
end
local seen = read_moved(record, ARGV[5], epoch, now)
local expires = math.min(math.max(record.expires, now + tonumber(ARGV[8])), record.latest)

-- check
if real > tonumber(ARGV[2]) then
  return { TOO_LATE, real, now }
end
if seen.cold then
  return {
    COLD, real, now, last_id(KEYS[2]), seen.tenant_cold, table.concat(seen.cold_holders), '', record.packed,
  }
end
if expires <= record.expires then
  return { REPLAYED, real, now, record.packed, pack_readings(record.places) }
end
local before = pack_amounts(record.consumed, record.count)
if not plan_moves(record, 1, record.consumed, expires) then
  return redis.error_reply('INCONSISTENT a counter holds less than its reservation does')
end
local due = due_bucket(ARGV[9], tonumber(ARGV[10]), expires, tonumber(meta[2]))
redis.call('LLEN', due)
record.expires, record.step = expires, record.step + 1

-- write
local sequence = append(KEYS[2], epoch, 5, now, ARGV[6], 0, pack_head(record, 0))
local whole = pack_head(record, sequence) .. string.sub(record.packed, record.body)
redis.call('SET', KEYS[3], whole)
redis.call('RPUSH', due, ARGV[7])
write_moves(record)
return { DONE, real, now, whole, pack_readings(record.places), sequence, before, '' }
