#!lua flags=allow-oom
-- consume: sets the totals so far of a reservation; final ones resolve it. After expiry they are late: a partial
--          consume leaves it expired and open to larger totals, as long as its meters accept late consumes.
--          Loaded twice: as consume_final with this first line, as consume_part with one without the flag.
-- KEYS     1 meta  2 outbox  3 reservation  4.. of a light one, light holds by when they end
-- ARGV     1 epoch  2 not_after  3 now ('' = Redis's)  4 id (16 bytes)  5 bound tenant ('' = none)
--          6 totals (packed in gate/resolve.rs)  7 keyed tombstone ms  8 unkeyed tombstone ms  9 final ('1' or '0')
--          10 parked ('0', '1', or '2' by a test clock): 3 is then the time at which it was taken
-- returns  { status, real time, time, outbox id, ... }
--          DONE: record before, record stored, readings    REPLAYED: record, readings
--          COLD: record, tenant, state hashes, counters
--          By the plain path DONE: record before, record stored, '', cells, numbers and capacities of quotas
--          others about the record: record, line from 0, meter    ALARM: epoch found
-- event    consume; none of a light one
-- include prelude
-- include plain/consume

local real, now, facts, alarm = prelude(ARGV[3])
if alarm then
  return alarm
end
local plain = ARGV[9] == '1' and not KEYS[4] and plain_consume(real, now, facts)
if plain then
  return plain
end

-- include resolving
-- include out_of_time
-- include states
-- include kinds
-- include about_record
-- include about_cold
-- include unchanged
-- include write_change
-- include read_totals
-- include same_totals
-- include late_rejected
-- include decreased_line
-- include rejected_line
-- include cap_totals
-- include plan_moves

-- read
local call, answer = resolving(real, now, facts)
if answer then
  return answer
end
local record = call.record
local late, resolves = record.state == STATE_EXPIRED, ARGV[9] == '1'
local totals, failure = read_totals(ARGV[6], record, function(line, named)
  if named and not resolves then
    return record.consumed[line]
  end
  return math.max(record.held[line], record.consumed[line])
end)

-- check
if not failure and same_totals(record, totals) then
  if record.state == STATE_CONSUMED or (record.state ~= STATE_RELEASED and not resolves) then
    return unchanged(call)
  end
end
local refused = out_of_time(call.real, now, call.facts[3])
if refused then
  return refused
end
if call.cold then
  return about_cold(call, '')
end
if record.state == STATE_CONSUMED or record.state == STATE_RELEASED then
  return about_record(call, ALREADY_RESOLVED)
end
if late and late_rejected(record, now) then
  return about_record(call, EXPIRED)
end
if failure then
  return about_record(call, failure.status, failure.line, failure.meter)
end
local line = decreased_line(record, totals)
if line then
  return about_record(call, AMOUNT_DECREASED, line)
end
line = rejected_line(record, totals)
if line then
  return about_record(call, EXCESS_REJECTED, line)
end
local uncharged, unknown = cap_totals(record, totals, now)
if unknown then
  return about_cold(call, string.char(unknown))
end
line = plan_moves(record, totals, resolves)
if line then
  return about_record(call, TOO_LARGE, line)
end

-- write
record.step = record.step + 1
record.state = resolves and STATE_CONSUMED or record.state
record.late = late
record.uncharged = uncharged
record.degraded = record.degraded or ARGV[10] ~= '0'
call.by_redis_clock = ARGV[3] == '' or ARGV[10] == '1'
return write_change(call, EVENT_CONSUME, resolves and 1 or 0, ARGV[7], ARGV[8])
