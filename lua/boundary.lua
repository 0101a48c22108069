#!lua
-- boundary: appends an event at which the writer cuts: what is before it in the outbox is before the instant. From then
--           on no script writes at an earlier time.
-- KEYS     1 meta  2 outbox
-- ARGV     1 epoch  2 not_after  3 now ('' = Redis's)  4 the instant (unix ms; 0: none)
-- returns  { status, real time, time, outbox id }    DONE    KEPT: the instant has not come
--          ALARM: epoch found
-- event    boundary
-- include prelude
-- include out_of_time
-- include kinds
-- include append
-- include pack_event

-- read
local outbox, instant = KEYS[2], tonumber(ARGV[4])
local real, now, facts, alarm = prelude(ARGV[3])
if alarm then
  return alarm
end
redis.call('XLEN', outbox)

-- check
local refused = out_of_time(real, now, facts[3])
if refused then
  return refused
end
if now < instant then
  return { KEPT, real, now, '' }
end

-- write
local id = append(outbox, ARGV[1], pack_event(EVENT_BOUNDARY, now, string.rep('\0', 16), 0, {}, '', ''))
if instant > tonumber(facts[3] or 0) then
  redis.call('HSET', KEYS[1], 'floor', ARGV[4])
end
return { DONE, real, now, id }
