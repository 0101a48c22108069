-- include holder_keys
-- include measure
-- include name_entries
-- include read_header
-- include read_new_counters
-- include add_new_counters
-- Reads the state hashes of a record, and the counters that count it: those that it names, then those created since.
local function measure_record(prefix, record, epoch, now)
  local keys = holder_keys(prefix, record)
  name_entries(record)
  local holders = measure(keys, record.counters, epoch, now, record.born_at)
  local tenant, named = holders[0], #record.counters
  record.named = named
  if not (tenant.warm and tenant.new_counters and record.tail) then
    return holders
  end
  add_new_counters(record, 0, tenant)
  local _, has_subjects = read_new_counters(tenant.new_counters)
  for number = 1, has_subjects and #record.subjects or 0 do
    local header = redis.call('HGET', keys[number + 1], 'h')
    local holder = { key = keys[number + 1], warm = false, waits = false, new_counters = false, untold = false, cold = false }
    if header then
      read_header(holder, header, epoch)
    end
    if holder.waits then
      holder.cold, holders[number] = true, holder
    elseif holder.warm and holder.new_counters then
      add_new_counters(record, number, holder)
    end
  end
  if #record.counters == named then
    return holders
  end
  local measured = measure(keys, record.counters, epoch, now, record.born_at)
  for number, holder in pairs(holders) do
    measured[number] = measured[number] or holder
  end
  return measured
end
