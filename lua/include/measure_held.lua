-- include keys/light
-- include load_light
-- include name_entries
-- Reads the light counters that a light record names, as they count its work. One that it did not move, or that has
-- forgotten it, counts nothing of it. Returns their hashes.
local function measure_held(prefix, record, epoch, now)
  local hashes, keys = {}, { light_key(prefix, record.tenant, '') }
  for number, hash in ipairs(record.subjects) do
    keys[number + 1] = light_key(prefix, record.tenant, hash)
  end
  name_entries(record)
  load_light(hashes, keys, 1, record.counters, epoch, now, record.born_at)
  for _, counter in ipairs(record.counters) do
    -- What a counter has forgotten of its holds is nothing that it lacks.
    counter.is_new = true
    counter.current = counter.current and not counter.unmoved
  end
  record.named = #record.counters
  return hashes
end
