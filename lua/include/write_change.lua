-- include statuses
-- include append
-- include sequence_of
-- include record_values
-- include pack_event
-- include store
-- include write_counters
-- include is_current
-- include pack_readings
-- include outlive
-- include store_held
-- include write_held
-- Appends the event of the call's changed record, stores that and its counters. Returns the answer. By a test clock no
-- key ends by itself; a parked call gives the time when it was taken, by either clock. A light record has no event.
local function write_change(call, kind, flags, keyed_ms, unkeyed_ms)
  local record = call.record
  if call.hashes then
    local stored = store_held(KEYS[3], KEYS[4], record, keyed_ms, unkeyed_ms)
    write_held(call.hashes, record, call.now, call.by_redis_clock)
    return { DONE, call.real, call.now, '', record.raw, stored, pack_readings(record.counters, is_current, record.named) }
  end
  local values, format = record_values(record)
  local id = append(KEYS[2], ARGV[1], pack_event(kind, call.now, ARGV[4], flags, values, format, ''))
  record.sequence = sequence_of(id, ARGV[1])
  local stored = store(KEYS[3], record, values, format, keyed_ms, unkeyed_ms)
  write_counters(call.holders, record.counters, call.by_redis_clock)
  -- Units used beyond a hold may count for longer than the hold would.
  for _, counter in ipairs(record.counters) do
    if counter.moved and counter.scope_index > 0 and not counter.algorithm.is_restorable then
      outlive(call.holders[counter.scope_index], counter.algorithm.resets_at(counter), call.now, call.by_redis_clock)
    end
  end
  return { DONE, call.real, call.now, id, record.raw, stored, pack_readings(record.counters, is_current, record.named) }
end
