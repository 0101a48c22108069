#!lua
-- lease: gives an instance a share of a counter, for work that it admits while the gate does not answer. The counter
--        holds the share. It comes back when its instance gives it back. After its end, the first lease takes it where
--        something else counts what was used; where leases count that, it stays until its instance has said how much.
--        That is said in totals of the window, so that a repeat counts nothing twice.
-- KEYS     1 meta  2 tenant's state or light counters  3.. the subject's, where the counter counts one
-- ARGV     1 epoch  2 not_after  3 now ('' = Redis's)  4 what is asked for (packed in gate/lease.rs)
-- returns  { status, real time, time, '', ... }
--          DONE: mark of the counter's window, its end, in totals of the window: granted, settled, what may be kept;
--          end of the share
--          STALE_WINDOW: over, or not begun    COLD: the ledger must restore something first    ALARM: epoch found
-- event    none
-- include prelude
-- include out_of_time
-- include read_checks
-- include state_keys
-- include measure
-- include find_cold
-- include load_light
-- include keep_subjects
-- include write_counters
-- include write_light

-- read
local real, now, facts, alarm = prelude(ARGV[3])
if alarm then
  return alarm
end
local epoch = tonumber(ARGV[1])
local flags, instance, mark, kept, used, settled, lasts, beat, at = struct.unpack('<Bc8i8i8i8i8i8i8', ARGV[4])
local is_light, wants, charges, recalls = flags % 2 == 1, flags % 4 >= 2, flags % 8 >= 4, flags >= 8
local counters, hashes = read_checks(ARGV[4], at), {}
local counter = counters[1]
local key, is_known, is_cold, holders
if is_light then
  load_light(hashes, KEYS, 2, counters, epoch, now)
  key, is_known, is_cold = counter.hash.key, counter.hash.is_known, false
else
  holders = measure(state_keys(2), counters, epoch, now)
  local holder = holders[counter.scope_index]
  key, is_known, is_cold = holder.key, holder.warm, find_cold(holders, counters) ~= nil
end
-- The field `l` and the counter's: `i8 mark  i8 recalled until`, then of each instance `c8 instance  i8 held  i8
-- settled  i8 end`.
local leases = is_known and redis.call('HGET', key, 'l' .. counter.field)
local others, instances, others_hold, own_hold, over, recalled_until = {}, 1, 0, 0, 0, 0
if mark ~= counter.mark then
  kept, used, settled = 0, 0, 0
end
local heard = settled
local of_mark, next_at = nil, nil
if leases and counter.current then
  of_mark, recalled_until, next_at = struct.unpack('<i8i8', leases)
end
if of_mark ~= counter.mark then
  leases, recalled_until = '', 0
end
while leases and next_at and next_at <= #leases do
  local of, held, of_settled, ends_at
  of, held, of_settled, ends_at, next_at = struct.unpack('<c8i8i8i8', leases, next_at)
  if of == instance then
    own_hold, settled = held, math.max(settled, of_settled)
  elseif ends_at > now or (charges and held + of_settled > 0) then
    others[#others + 1] = struct.pack('<c8i8i8i8', of, held, of_settled, ends_at)
    if ends_at > now then
      instances, others_hold = instances + 1, others_hold + held
    end
  else
    over = over + held
  end
end

-- check
local late = out_of_time(real, now, facts[3])
if late then
  return late
end
if is_cold then
  return { COLD, real, now, '' }
end
-- Where a window begins with its first use (it is not aligned), a share begins none: it is no use yet.
local has_begun = counter.current or counter.aligned ~= 0
if counter.later or not has_begun or now < counter.began or now >= counter.algorithm.resets_at(counter) then
  return { STALE_WINDOW, real, now, '' }
end
local used_since = math.max(used - settled, 0)
settled = settled + used_since
counter.algorithm.give_back(counter, math.min(own_hold + over, counter.reserved))
if charges then
  counter.algorithm.charge(counter, used_since)
end
local room, share = counter.algorithm.room(counter, counter.capacity), 0
if recalls then
  recalled_until = now + 5 * beat
end
-- Half of what is left stays with the gate, which decides as long as it answers.
if wants and recalled_until <= now then
  share = math.floor(math.min(counter.capacity / instances, (room + others_hold) / (2 * instances)))
  share = math.max(math.min(share, room), 0)
end
-- Its instance counts on what it keeps until it has heard of less.
local held = math.max(math.min(math.max(kept - settled, 0), own_hold), share)
counter.algorithm.hold(counter, held, now + beat)
counter.moved = true

-- write
local ends_at, resets_at = now + lasts, counter.algorithm.resets_at(counter)
if is_light then
  counter.hash.needed_until = math.max(counter.hash.needed_until, resets_at, ends_at)
  write_light(hashes, epoch, now, ARGV[3] == '')
else
  keep_subjects(holders, epoch, math.max(resets_at, ends_at), now, ARGV[3] == '')
  write_counters(holders, counters, ARGV[3] == '')
end
-- Who wants nothing and has heard that all is settled is forgotten.
if wants or held > 0 or settled > heard then
  others[#others + 1] = struct.pack('<c8i8i8i8', instance, held, settled, ends_at)
end
redis.call('HSET', key, 'l' .. counter.field, struct.pack('<i8i8', counter.mark, recalled_until) .. table.concat(others))
return { DONE, real, now, '', counter.mark, resets_at, settled + held, settled, settled + math.min(held, share), ends_at }
