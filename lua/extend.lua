#!lua
-- extend: moves a reservation's expiry to now + ttl where that is later, at most to its latest permitted expiry.
-- KEYS     1 meta  2 outbox  3 reservation
-- ARGV     1 epoch  2 not_after  3 now ('' = Redis's)  4 id (16 bytes)  5 bound tenant ('' = none)  6 ttl ms  7 due bucket ms
-- returns  { status, real time, time, outbox id, ... }
--          DONE: record before, record stored, readings    REPLAYED (nothing changes): record, readings
--          COLD: record, tenant, holders, counters
--          others about the record: record    ALARM: epoch found
-- event    extend
-- include resolving
-- include due_key
-- include held_in
-- include outlive

-- read
local expires_at = math.min(now + tonumber(ARGV[6]), record.latest_expiry)
local due = due_key(prefix, expires_at, tonumber(ARGV[7]), tonumber(found[2]))
redis.call('LLEN', due)

-- check
if real > not_after then
  return { TOO_LATE, real, now, '' }
end
if before_floor(floor, real, now) then
  return { TOO_EARLY, real, now, '' }
end
if cold then
  return about_cold('')
end
if record.state == STATE_EXPIRED then
  return about_record(EXPIRED)
end
if record.state ~= STATE_RESERVED then
  return about_record(ALREADY_RESOLVED)
end
if expires_at <= record.expires_at then
  return unchanged()
end

-- write
for _, counter in ipairs(record.counters) do
  if counter.current and counter.reserved > 0 and counter.reserved == held_in(record, counter) then
    counter.next_end, counter.moved = expires_at, true
  end
end
record.step = record.step + 1
record.expires_at = expires_at
local answer = write(EVENT_EXTEND, 0)
redis.call('RPUSH', due, string.sub(reservation, -32))
for number, holder in pairs(holders) do
  if number > 0 and holder.warm then
    outlive(holder, expires_at, now, ARGV[3] == '')
  end
end
return answer
