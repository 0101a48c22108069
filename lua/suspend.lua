#!lua flags=allow-oom
-- suspend: suspends a warm hash until a restore, because a counter begins inside its window: nothing moves meanwhile,
--          so the restore gets everything that is held and consumed. A call that meets the hash restores it. Its
--          other counters stay.
-- KEYS     1 meta  2 outbox  3 tenant's state  4.. the subject's state, if that is suspended instead
-- ARGV     1 epoch  2 not_after  3 now ('' = Redis's)
-- returns  { status, real time, time, outbox's last id }    DONE    COLD: the tenant is cold    ALARM: epoch found
-- event    none
-- include prelude
-- include last_id
-- include last_sequence
-- include told_sequence
-- include integer
-- include unfit

-- read
local epoch, tenant, subject = tonumber(ARGV[1]), KEYS[3], KEYS[4]
local real, now, _, alarm = prelude(ARGV[3])
if alarm then
  return alarm
end
local header = redis.call('HGET', tenant, 'h')
local of_subject = subject and redis.call('HGET', subject, 'h')
local last, sequence = last_id(KEYS[2]), last_sequence(KEYS[2], ARGV[1])

-- check
local refused = unfit(real, now, header, last)
if refused then
  return refused
end

-- write
-- The ledger has restored what the hash keeps up to the sequence that its header had first.
local function keep_restored(state, before)
  redis.call('HSETNX', state, 'r********', struct.pack('<i8c16', told_sequence(before), string.rep('\0', 16)))
end
-- The header of a suspended hash has the sequence from which it waits.
local function waiting(before)
  return struct.pack('<i8', -epoch) .. string.sub(before, 9, 24) .. struct.pack('<i8', sequence) .. string.sub(before, 33)
end
if not subject then
  keep_restored(tenant, header)
  redis.call('HSET', tenant, 'h', waiting(header))
  return { DONE, real, now, last }
end
local whole = #header < 40 and string.sub(header, 1, 32) .. struct.pack('<i8', -1) or header
redis.call('HSET', tenant, 'h', string.sub(whole, 1, 40) .. '\1' .. string.sub(whole, 42))
local state = of_subject and struct.unpack('<i8', of_subject)
if state == epoch then
  keep_restored(subject, of_subject)
  redis.call('HSET', subject, 'h', waiting(of_subject))
elseif state ~= -epoch then
  redis.call('DEL', subject)
  redis.call('HSET', subject, 'h', waiting(struct.pack('<i8i8i8i8i8', epoch, now, 0, sequence, 0)))
  if ARGV[3] == '' then
    redis.call('PEXPIREAT', subject, integer(now + 3600000))
  end
end
return { DONE, real, now, last }
