#!lua flags=allow-oom
-- What the ledger tells the gate: a tenant in pages, a subject, single counters, or one resolved reservation.
--
-- KEYS  1 meta  2 outbox  3 the state to tell (tenant's or subject's)  4… reservations
-- ARGV  1 epoch  2 not_after (real ms)  3 now (test clock, ms, or empty)  4 `page`, `last`, `subject`, `counters` or `record`
--       5 ask_until (ms)  6 counters: c8 field, i8 window start, i8 consumed, i8 reserved, i8 next end  7 capacities: c8
--       field, Bc0 packed  8 prefix of due buckets  9 width of a due bucket (ms)  10 tombstone life (ms)
--       11… per reservation: id (hex), head and lines packed in this epoch, body
-- Returns {status, real time, now}: ALARM {epoch found} · TOO_LATE · WARM · COLD · KEPT · DONE
-- Event none
-- include status
-- include clock
-- include record
-- include due

-- read
local real, now = clock(ARGV[3])
local meta = redis.call('HMGET', KEYS[1], 'epoch', 'swept')
if meta[1] ~= ARGV[1] then
  return { ALARM, real, now, meta[1] or '' }
end
local epoch, what = tonumber(ARGV[1]), ARGV[4]
local header = redis.call('HGET', KEYS[3], 'h')
local warm = header and struct.unpack('<i8', header) == epoch

-- check
if real > tonumber(ARGV[2]) then
  return { TOO_LATE, real, now }
end
if warm and (what == 'page' or what == 'last' or what == 'subject') then
  return { WARM, real, now }
end
if not warm and what == 'counters' then
  return { COLD, real, now }
end

-- write
if what == 'record' then
  local known = redis.call('GET', KEYS[4])
  if known and read_record(known).epoch == epoch then
    return { KEPT, real, now }
  end
  redis.call('SET', KEYS[4], ARGV[12] .. ARGV[13], 'PX', ARGV[10])
  return { DONE, real, now }
end
for reservation = 4, #KEYS do
  local at = 11 + (reservation - 4) * 3
  local record = read_record(ARGV[at + 1])
  redis.call('SET', KEYS[reservation], ARGV[at + 1] .. ARGV[at + 2])
  redis.call('RPUSH', due_bucket(ARGV[8], tonumber(ARGV[9]), record.expires, tonumber(meta[2])), ARGV[at])
end
if what == 'page' then
  return { DONE, real, now }
end
if what ~= 'counters' then
  redis.call('DEL', KEYS[3])
  redis.call('HSET', KEYS[3], 'h', struct.pack('<i8i8i8', epoch, now, tonumber(ARGV[5])))
end
local at, length = 1, string.len(ARGV[6])
while at <= length do
  local field, start, consumed, reserved, next_end
  field, start, consumed, reserved, next_end, at = struct.unpack('<c8i8i8i8i8', ARGV[6], at)
  redis.call('HSETNX', KEYS[3], field, struct.pack('<i8i8i8i8', start, consumed, reserved, next_end))
end
at, length = 1, string.len(ARGV[7])
while at <= length do
  local field, packed
  field, packed, at = struct.unpack('<c8Bc0', ARGV[7], at)
  local stored = redis.call('HGET', KEYS[3], 'q' .. field)
  if not stored or struct.unpack('<i8', stored) < struct.unpack('<i8', packed) then
    redis.call('HSET', KEYS[3], 'q' .. field, packed)
  end
end
return { DONE, real, now }
