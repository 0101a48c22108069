#!lua flags=allow-oom
-- restore: one page of what the ledger knows of a cold tenant or subject; the last page makes it warm.
-- KEYS     1 meta  2 outbox  3 state
-- ARGV     1 epoch  2 not_after  3 now ('' = Redis's)  4 due bucket ms  5 last page ('1' or '0')  6 ask_until ms  7 records
--          then per record: id (32 hex), record; then, on the last page, per field: name, value
-- returns  { status, real time, time, '' }    DONE    WARM: another restore was first, nothing written    ALARM: epoch found
-- event    none: the gate is told what the ledger knows
-- include statuses
-- include clock
-- include due_key
-- include read_record
-- include last_sequence

-- read
local meta, state = KEYS[1], KEYS[3]
local prefix = string.sub(meta, 1, -5)
local epoch, due_ms = tonumber(ARGV[1]), tonumber(ARGV[4])
local real, now = clock(ARGV[3])
local found = redis.call('HMGET', meta, 'epoch', 'swept')
if found[1] ~= ARGV[1] or not found[2] then
  return { ALARM, real, now, '', found[1] or '' }
end
local header = redis.call('HGET', state, 'h')
local sequence = last_sequence(KEYS[2], ARGV[1])
local records, record_count = {}, tonumber(ARGV[7])
for number = 1, record_count do
  local hex, raw = ARGV[6 + 2 * number], ARGV[7 + 2 * number]
  local expires_at = read_record(raw, epoch).expires_at
  local due = due_key(prefix, expires_at, due_ms, tonumber(found[2]))
  local existing = read_record(redis.call('GET', prefix .. 'rsv:' .. hex), epoch)
  redis.call('LLEN', due)
  local is_due = existing and existing.expires_at == expires_at
  records[number] = { key = prefix .. 'rsv:' .. hex, raw = raw, hex = hex, due = not is_due and due }
end

-- check
if header and struct.unpack('<i8', header) == epoch then
  return { WARM, real, now, '' }
end
if real > tonumber(ARGV[2]) then
  return { TOO_LATE, real, now, '' }
end

-- write
for _, record in ipairs(records) do
  redis.call('SET', record.key, record.raw)
  if record.due then
    redis.call('RPUSH', record.due, record.hex)
  end
end
if ARGV[5] == '1' then
  redis.call('DEL', state)
  for at = 8 + 2 * record_count, #ARGV, 2 do
    redis.call('HSET', state, ARGV[at], ARGV[at + 1])
  end
  redis.call('HSET', state, 'h', struct.pack('<i8i8i8i8', epoch, now, tonumber(ARGV[6]), sequence))
end
return { DONE, real, now, '' }
