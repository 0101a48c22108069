-- include body_of
-- include pack_record
-- include states
-- Stores a record, from values and their format, after its event: whole while open; whole with an end of life when
-- expired, because a late consume needs it; otherwise as a tombstone. Returns what is stored.
local function store(key, record, values, format, keyed_ms, unkeyed_ms)
  local is_open = record.state == STATE_RESERVED
  local is_whole = is_open or record.state == STATE_EXPIRED
  local stored = pack_record(values, format, record.sequence, body_of(record, not is_whole and record.core_length or nil))
  if is_open then
    redis.call('SET', key, stored)
  else
    redis.call('SET', key, stored, 'PX', record.keyed and keyed_ms or unkeyed_ms)
  end
  return stored
end
