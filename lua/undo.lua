#!lua flags=allow-oom
-- undo: gives back what a repeat of a booked operation moved, and leaves the reservation as it is booked.
-- KEYS     1 meta  2 outbox  3 reservation
-- ARGV     1 epoch  2 not_after  3 now ('' = Redis's)  4 record of the repeated event  5 its sequence
--          6 record as booked  7 due bucket ms  8 keyed tombstone ms  9 unkeyed tombstone ms
-- returns  { status, real time, time, outbox's last id }
--          DONE    KEPT: that life of the reservation is not there, or goes on in the books
--          COLD: a state hash waits for the ledger, and keeps what it counts until then    ALARM: epoch found
-- event    none: the figures come from the ledger
-- include prelude
-- include out_of_time
-- include states
-- include last_id
-- include keys/prefix
-- include due_list
-- include told_sequence
-- include read_record
-- include read_body
-- include measure
-- include held_in
-- include holder_keys
-- include write_counters
-- include record_values
-- include store

-- read
local reservation, prefix = KEYS[3], key_prefix()
local epoch, place, due_ms = tonumber(ARGV[1]), tonumber(ARGV[5]), tonumber(ARGV[7])
local real, now, facts, alarm = prelude(ARGV[3])
if alarm then
  return alarm
end
local last = last_id(KEYS[2])
local again, booked = read_record(ARGV[4], epoch), read_record(ARGV[6], epoch)
read_body(again)
read_body(booked)
local record = read_record(redis.call('GET', reservation), epoch)
local holders = measure(holder_keys(prefix, again), again.counters, epoch, now, again.born_at)
local due = due_list(prefix, booked.expires_at, due_ms, tonumber(facts[2]))
local same_life = record and record.born_at == again.born_at and record.sequence >= place
  and body_of(record, 16) == body_of(again, 16)
-- A correction that takes back has lowered what it counts.
local sign = record and record.correction > 32 and -1 or 1
-- Whether the ledger restored a counter after the repeat, and so without it.
local function is_told(counter)
  local holder = holders[counter.scope_index]
  if holder.is_light then
    return false
  end
  for _, by in ipairs({ 'r' .. counter.field, 'r********' }) do
    local sequence, checkpoint = struct.unpack('<i8c16', redis.call('HGET', holder.key, by) or string.rep('\255', 24))
    if checkpoint == string.rep('\0', 16) then
      return sequence >= place
    end
  end
  return told_sequence(holder.values[1]) >= place
end

-- check
local refused = out_of_time(real, now)
if refused then
  return refused
end
if not same_life or (booked.state == STATE_RESERVED and record.sequence > place) then
  return { KEPT, real, now, last }
end
for _, holder in pairs(holders) do
  if holder.waits then
    return { COLD, real, now, last }
  end
end
for _, counter in ipairs(again.counters) do
  if counter.current and counter.algorithm.holds_survive and not is_told(counter) then
    local consumed, open = counter.consumed, record.state == STATE_RESERVED
    local reserved = counter.reserved - (open and held_in(record, counter) or 0)
    for line, weight in pairs(counter.algorithm.is_restorable and counter.weights or {}) do
      consumed = consumed - sign * weight * record.consumed[line]
    end
    -- A counter with less than that was set in another way: the next checkpoint compares it.
    if consumed >= 0 and reserved >= 0 then
      counter.consumed, counter.reserved, counter.moved = consumed, reserved, true
      if reserved == 0 then
        counter.next_end = 0
      end
    end
  end
end

-- write
local values, format = record_values(booked)
store(reservation, booked, values, format, ARGV[8], ARGV[9])
if booked.state == STATE_RESERVED then
  redis.call('RPUSH', due, string.sub(reservation, -32))
end
write_counters(holders, again.counters, ARGV[3] == '')
return { DONE, real, now, last }
