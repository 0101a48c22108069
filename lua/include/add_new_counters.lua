-- include algorithms
-- include read_new_counters
-- include operation_of
-- Adds to a record's counters those of one hash that were created inside their window and restored while the record was
-- open: they count the record although it does not name them. A record of the restore's own millisecond may not have
-- been open then; it counts, and so a counter that a record names may hold less than the record.
local function add_new_counters(record, number, holder)
  local named = {}
  for _, counter in ipairs(record.counters) do
    named[counter.field] = named[counter.field] or (counter.scope_index == number and counter)
  end
  for _, counter in ipairs((read_new_counters(holder.new_counters))) do
    local counts = #counter.operations == 0
    for _, operation in ipairs(counter.operations) do
      counts = counts or operation == operation_of(record)
    end
    local born_at = record.born_at
    if named[counter.field] then
      named[counter.field].is_new = true
    elseif counts and born_at >= counter.window and born_at < counter.window_end
      and born_at <= counter.told_at then
      local weights, has_line = {}, false
      for line = 1, record.count do
        local factor = not record.lines[line].unbooked and counter.factors[record.lines[line].meter]
        if factor then
          weights[line], has_line = factor, true
        end
      end
      if has_line then
        record.counters[#record.counters + 1] = {
          weights = weights, scope_index = number, field = counter.field, algorithm = algorithm_of(CALENDAR),
          code = CALENDAR, mark = 0, began = counter.window, window_end = counter.window_end, is_new = true, consumed = 0,
          reserved = 0, next_end = 0, missing = true, current = false, later = false, moved = false,
        }
      end
    end
  end
end
