#!lua flags=allow-oom
-- restore_subject: restores one subject of a warm tenant from the ledger. Counters that scripts have moved since the
--                  tenant's restore stay, and so do those of a suspended subject.
-- KEYS     1 meta  2 outbox  3 subject's state  4 tenant's state
-- ARGV     1 epoch  2 not_after  3 now ('' = Redis's)  4 when its windows and holds have ended (unix ms)
--          5 counters created inside their window (packed in gate/restore.rs)
--          6 the outbox's sequence up to which these figures go (-1 = nothing of this epoch)
--          then per counter: field, value
-- returns  { status, real time, time, '' }    DONE    WARM: another restore was first    COLD: the tenant is cold
--          ALARM: epoch found
-- event    none: the figures come from the ledger
-- include prelude
-- include out_of_time
-- include last_sequence
-- include told_sequence
-- include new_counters_told
-- include outlive

-- read
local epoch, state = tonumber(ARGV[1]), KEYS[3]
local real, now, _, alarm = prelude(ARGV[3])
if alarm then
  return alarm
end
local header, tenant = redis.call('HGET', state, 'h'), redis.call('HGET', KEYS[4], 'h')
local sequence = last_sequence(KEYS[2], ARGV[1])

-- check
if not tenant or struct.unpack('<i8', tenant) ~= epoch then
  return { COLD, real, now, '' }
end
local of_epoch, restored_at, made
if header then
  of_epoch, restored_at, made = struct.unpack('<i8i8i8', header)
end
local is_made, waits = of_epoch == epoch and made == -1, of_epoch == -epoch
if (of_epoch == epoch and not is_made) or (waits and told_sequence(header) > tonumber(ARGV[6])) then
  return { WARM, real, now, '' }
end
local refused = out_of_time(real, now)
if refused then
  return refused
end

-- write
if is_made then
  header = struct.pack('<i8i8i8', epoch, restored_at, 0) .. string.sub(header, 25)
else
  local ends_at = waits and #header >= 40 and string.sub(header, 33, 40) or struct.pack('<i8', 0)
  local before = waits and #header > 40 and string.sub(header, 41)
  if not waits then
    redis.call('DEL', state)
  end
  header = struct.pack('<i8i8i8i8', epoch, now, 0, sequence) .. ends_at .. new_counters_told(ARGV[5], now, before)
end
redis.call('HSET', state, 'h', header)
local told = struct.pack('<i8c16', sequence, string.rep('\0', 16))
for at = 7, #ARGV, 2 do
  if redis.call('HSETNX', state, ARGV[at], ARGV[at + 1]) == 1 then
    redis.call('HSET', state, 'r' .. ARGV[at], told)
  end
end
outlive({ key = state, values = { header } }, tonumber(ARGV[4]), now, ARGV[3] == '')
return { DONE, real, now, '' }
