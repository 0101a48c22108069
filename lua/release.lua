#!lua flags=allow-oom
-- release: gives back what is held, and charges what was used of it. After expiry, used units are a late consume.
-- KEYS     1 meta  2 outbox  3 reservation  4.. of a light one, light holds by when they end
-- ARGV     1 epoch  2 not_after  3 now ('' = Redis's)  4 id (16 bytes)  5 bound tenant ('' = none)
--          6 incurred totals (packed in gate/resolve.rs)  7 keyed tombstone ms  8 unkeyed tombstone ms
--          9 parked ('0', '1', or '2' by a test clock): 3 is then the time at which it was taken
-- returns  { status, real time, time, outbox id, ... }
--          DONE: record before, record stored, readings    REPLAYED: record, readings
--          COLD: record, tenant, state hashes, counters
--          others about the record: record, line from 0, meter    ALARM: epoch found
-- event    release, or consume when late; none of a light one
-- include prelude
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
local real, now, facts, alarm = prelude(ARGV[3])
if alarm then
  return alarm
end
local call, answer = resolving(real, now, facts)
if answer then
  return answer
end
local record = call.record
local totals, failure, named = read_totals(ARGV[6], record, function(line)
  return record.consumed[line]
end)
local late = record.state == STATE_EXPIRED

-- check
local repeats_late = record.state == STATE_CONSUMED and record.late and named
if (record.state == STATE_RELEASED or repeats_late) and not failure and same_totals(record, totals) then
  return unchanged(call)
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
if late and (not named or late_rejected(record, now)) then
  return about_record(call, EXPIRED)
end
if failure then
  return about_record(call, failure.status, failure.line, failure.meter)
end
local line = decreased_line(record, totals)
if line then
  return about_record(call, AMOUNT_DECREASED, line)
end
local uncharged, unknown = {}, nil
if late then
  line = rejected_line(record, totals)
  if line then
    return about_record(call, EXCESS_REJECTED, line)
  end
  uncharged, unknown = cap_totals(record, totals, now)
  if unknown then
    return about_cold(call, string.char(unknown))
  end
end
line = plan_moves(record, totals, true)
if line then
  return about_record(call, TOO_LARGE, line)
end

-- write
record.step = record.step + 1
record.state = late and STATE_CONSUMED or STATE_RELEASED
record.late = late
record.uncharged = uncharged
record.degraded = record.degraded or ARGV[9] ~= '0'
call.by_redis_clock = ARGV[3] == '' or ARGV[9] == '1'
return write_change(call, late and EVENT_CONSUME or EVENT_RELEASE, late and 1 or 0, ARGV[7], ARGV[8])
