#!lua flags=allow-oom
-- restore_hold: restores one reservation of a warm tenant that is open in the books and unknown here. Its units are
--               held again in the counters that are still in its windows, and it falls due like any other.
-- KEYS     1 meta  2 outbox  3 reservation
-- ARGV     1 epoch  2 not_after  3 now ('' = Redis's)  4 record  5 due bucket ms
--          6 numbers of the state hashes that were restored with it, as bytes
--          7 numbers of its counters that no ledger restores, from 0, as bytes
-- returns  { status, real time, time, '', ... }    DONE    KEPT: known already    COLD: tenant, state hashes
--          ALARM: epoch found
-- event    none: the figures come from the ledger
-- include prelude
-- include out_of_time
-- include keys/prefix
-- include due_list
-- include read_record
-- include read_body
-- include measure_record
-- include cold_record
-- include held_in
-- include write_counters
-- include outlive

-- read
local reservation, prefix, epoch = KEYS[3], key_prefix(), tonumber(ARGV[1])
local real, now, facts, alarm = prelude(ARGV[3])
if alarm then
  return alarm
end
local record = read_record(ARGV[4], epoch)
read_body(record)
local holders = measure_record(prefix, record, epoch, now)
-- A counter that is missing would start at zero, without this hold.
for _, counter in ipairs(record.counters) do
  local holder = holders[counter.scope_index]
  holder.cold = holder.cold or (holder.untold and counter.missing and counter.algorithm.holds_survive)
end
local cold = cold_record(holders, record)
local function is_told(counter)
  return string.find(ARGV[6], string.char(counter.scope_index), 1, true)
    and redis.call('HEXISTS', holders[counter.scope_index].key, 'r' .. counter.field) == 1
end
-- Whether a counter begins with this hold: it is missing or of an earlier window, and has nothing else to be restored.
local function begins_afresh(number, counter)
  return not counter.later and string.find(ARGV[7], string.char(number - 1), 1, true)
end
local due = due_list(prefix, record.expires_at, tonumber(ARGV[5]), tonumber(facts[2]))

-- check
if read_record(redis.call('GET', reservation), epoch) then
  return { KEPT, real, now, '' }
end
local refused = out_of_time(real, now)
if refused then
  return refused
end
if cold then
  return { COLD, real, now, '', cold.tenant, cold.holders }
end

-- write
for number, counter in ipairs(record.counters) do
  local algorithm = counter.algorithm
  local counts = counter.current or algorithm.is_timeless or begins_afresh(number, counter)
  if counts and algorithm.holds_survive and not counter.unmoved and not is_told(counter) then
    if algorithm.is_timeless then
      counter.mark = math.min(counter.mark, record.born_at)
    end
    counter.algorithm.hold(counter, held_in(record, counter), record.expires_at)
    counter.moved = true
  end
end
redis.call('SET', reservation, ARGV[4])
redis.call('RPUSH', due, string.sub(reservation, -32))
write_counters(holders, record.counters, ARGV[3] == '')
for number, holder in pairs(holders) do
  if number > 0 and holder.warm then
    outlive(holder, record.expires_at, now, ARGV[3] == '')
  end
end
return { DONE, real, now, '' }
