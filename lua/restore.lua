#!lua flags=allow-oom
-- restore: restores one page of a cold tenant from the ledger; the last page makes it warm. A suspended tenant keeps
--          its records and counters, and gets only what it lacks.
-- KEYS     1 meta  2 outbox  3 tenant's state
-- ARGV     1 epoch  2 not_after  3 now ('' = Redis's)  4 due bucket ms  5 last page ('1' or '0')  6 ask_until ms
--          7 number of records  8 counters created inside their window (packed in gate/restore.rs)
--          9 the outbox's sequence up to which these figures go (-1 = nothing of this epoch)
--          10 filter of the subjects that may have use or holds ('' = none has, '?' = each may)
--          11 when it ends (unix ms)
--          then per record: id (32 hex), record; then, on the last page, per field: name, value
-- returns  { status, real time, time, '' }    DONE    WARM: another restore was first, nothing written
--          ALARM: epoch found
-- event    none: the figures come from the ledger
-- include prelude
-- include out_of_time
-- include keys/prefix
-- include keys/reservation
-- include keys/known_subjects
-- include due_list
-- include read_record
-- include last_sequence
-- include new_counters_told
-- include told_sequence
-- include lacks

-- read
local state, prefix = KEYS[3], key_prefix()
local epoch, due_ms = tonumber(ARGV[1]), tonumber(ARGV[4])
local real, now, facts, alarm = prelude(ARGV[3])
if alarm then
  return alarm
end
local header = redis.call('HGET', state, 'h')
local of_epoch = header and struct.unpack('<i8', header)
local waits = of_epoch == -epoch
local sequence = last_sequence(KEYS[2], ARGV[1])
local records, record_count = {}, tonumber(ARGV[7])
for number = 1, waits and 0 or record_count do
  local hex, raw = ARGV[10 + 2 * number], ARGV[11 + 2 * number]
  local copy = read_record(raw, epoch)
  local expires_at = copy.expires_at
  local due = due_list(prefix, expires_at, due_ms, tonumber(facts[2]))
  local key = reservation_key(prefix, hex)
  local existing = read_record(redis.call('GET', key), epoch)
  local is_due = existing and existing.expires_at == expires_at
  -- The copy has moved nothing in light counters; what is here still owns its units there.
  local is_same = existing and existing.born_at == copy.born_at and existing.step == copy.step
  records[number] = { key = key, raw = is_same and existing.raw or raw, hex = hex, due = not is_due and due }
end
local lacking = {}
for at = 12 + 2 * record_count, #ARGV, 2 do
  if lacks(waits and redis.call('HGET', state, ARGV[at]), ARGV[at], ARGV[at + 1]) then
    lacking[#lacking + 1] = at
  end
end

-- check
if of_epoch == epoch or (waits and told_sequence(header) > tonumber(ARGV[9])) then
  return { WARM, real, now, '' }
end
local refused = out_of_time(real, now)
if refused then
  return refused
end

-- write
for _, record in ipairs(records) do
  redis.call('SET', record.key, record.raw)
  if record.due then
    redis.call('RPUSH', record.due, record.hex)
  end
end
if ARGV[5] == '1' then
  local ask_until, before = tonumber(ARGV[6]), nil
  local length = ARGV[10] == '?' and -1 or #ARGV[10]
  local filter = known_subjects_key(state)
  redis.call('DEL', filter)
  if waits then
    ask_until = struct.unpack('<i8', header, 17)
    before = #header > 40 and string.sub(header, 41)
  else
    redis.call('DEL', state)
  end
  for _, at in ipairs(lacking) do
    redis.call('HSET', state, ARGV[at], ARGV[at + 1])
    if waits and #ARGV[at] == 8 then
      redis.call('HSET', state, 'r' .. ARGV[at], struct.pack('<i8c16', sequence, string.rep('\0', 16)))
    end
  end
  local new_counters = new_counters_told(ARGV[8], now, before)
  redis.call('HSET', state, 'h', struct.pack('<i8i8i8i8i8', epoch, now, ask_until, sequence, length) .. new_counters)
  if length > 0 then
    redis.call('SET', filter, ARGV[10])
    if ARGV[3] == '' then
      redis.call('PEXPIREAT', filter, ARGV[11])
    end
  end
end
return { DONE, real, now, '' }
