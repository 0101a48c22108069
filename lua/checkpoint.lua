#!lua
-- checkpoint: appends the figures of a tenant's counters as one event. The writer compares them with the books as of
--             the event's place.
-- KEYS     1 meta  2 outbox  3 tenant's state  4.. subjects' states
-- ARGV     1 epoch  2 not_after  3 now ('' = Redis's)  4 id (16 bytes)  5 counters (packed in gate/counters.rs)
--          6 valid from  7 valid until  8 description (packed in domain/checkpoint.rs)
-- returns  { status, real time, time, outbox id }    DONE    STALE_WINDOW    COLD: the tenant is cold
--          KEPT: every counter is cold    ALARM: epoch found
-- event    checkpoint, with the description and the counters' figures
-- include prelude
-- include out_of_time
-- include kinds
-- include state_keys
-- include last_id
-- include append
-- include read_checks
-- include measure
-- include find_cold
-- include pack_event
-- include pack_figures

-- read
local outbox = KEYS[2]
local real, now, _, alarm = prelude(ARGV[3])
if alarm then
  return alarm
end
redis.call('XLEN', outbox)
local checks = read_checks(ARGV[5], 1)
local holders = measure(state_keys(3), checks, tonumber(ARGV[1]), now)
find_cold(holders, checks)
-- Whether its figures can be compared: it counted from its window's start on, or was restored after every instance knew
-- it.
local function is_told(check)
  local is_whole = check.began >= check.since or holders[check.scope_index].restored_at >= check.since
  return check.known and not check.later and is_whole
end

-- check
local refused = out_of_time(real, now)
if refused then
  return refused
end
if now < tonumber(ARGV[6]) or now >= tonumber(ARGV[7]) then
  return { STALE_WINDOW, real, now, '' }
end
if not holders[0].warm then
  return { COLD, real, now, last_id(outbox) }
end
local any = false
for _, check in ipairs(checks) do
  any = any or is_told(check)
end
if not any then
  return { KEPT, real, now, '' }
end

-- write
local figures = pack_figures(checks, is_told)
return { DONE, real, now, append(outbox, ARGV[1], pack_event(EVENT_CHECKPOINT, now, ARGV[4], 0, {}, '', ARGV[8] .. figures)) }
