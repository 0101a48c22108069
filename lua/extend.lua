#!lua
-- extend: moves a reservation's expiry to now + ttl if that is later, but at most to the latest one allowed.
-- KEYS     1 meta  2 outbox  3 reservation  4.. of a light one, light holds by when they end
-- ARGV     1 epoch  2 not_after  3 now ('' = Redis's)  4 id (16 bytes)  5 bound tenant ('' = none)  6 ttl ms
--          7 due bucket ms
-- returns  { status, real time, time, outbox id, ... }
--          DONE: record before, record stored, readings    REPLAYED (nothing changes): record, readings
--          COLD: record, tenant, state hashes, counters
--          others about the record: record    ALARM: epoch found
-- event    extend; none of a light one
-- include prelude
-- include resolving
-- include out_of_time
-- include states
-- include kinds
-- include about_record
-- include about_cold
-- include unchanged
-- include write_change
-- include due_list
-- include held_in
-- include outlive

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
local expires_at = math.min(now + tonumber(ARGV[6]), record.latest_expiry)
local due = not call.hashes and due_list(call.prefix, expires_at, tonumber(ARGV[7]), tonumber(call.facts[2]))

-- check
local refused = out_of_time(call.real, now, call.facts[3])
if refused then
  return refused
end
if call.cold then
  return about_cold(call, '')
end
if record.state == STATE_EXPIRED then
  return about_record(call, EXPIRED)
end
if record.state ~= STATE_RESERVED then
  return about_record(call, ALREADY_RESOLVED)
end
if expires_at <= record.expires_at then
  return unchanged(call)
end

-- write
for _, counter in ipairs(record.counters) do
  if counter.current and counter.reserved > 0 and counter.reserved == held_in(record, counter) then
    counter.next_end, counter.moved = expires_at, true
  end
end
record.step = record.step + 1
record.expires_at = expires_at
call.by_redis_clock = ARGV[3] == ''
local extended = write_change(call, EVENT_EXTEND, 0)
if due then
  redis.call('RPUSH', due, string.sub(KEYS[3], -32))
end
for number, holder in pairs(call.holders) do
  if number > 0 and holder.warm then
    outlive(holder, expires_at, now, ARGV[3] == '')
  end
end
return extended
