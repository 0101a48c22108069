-- include held_in
-- include states
-- Says which entry a record has in the logs of its counters: its id, and what the record holds and consumed there.
local function name_entries(record)
  for _, counter in ipairs(record.counters) do
    if counter.algorithm.has_log then
      counter.id, counter.entry_consumed = record.hex, 0
      counter.entry_held = record.state == STATE_RESERVED and held_in(record, counter) or 0
      for line, weight in pairs(counter.weights) do
        counter.entry_consumed = counter.entry_consumed + weight * record.consumed[line]
      end
    end
  end
end
