-- include pack_head
-- include states
-- Stores a record after its event: whole while open, whole with an end of life when expired (a late consume needs it), else as a tombstone.
local function store(key, record, keyed_ms, unkeyed_ms)
  local head = pack_head(record)
  if record.state == STATE_RESERVED then
    redis.call('SET', key, head .. record.body)
    return
  end
  local kept = record.body
  if record.state ~= STATE_EXPIRED then
    kept = string.sub(kept, 1, record.core_length)
  end
  redis.call('SET', key, head .. kept, 'PX', record.keyed and keyed_ms or unkeyed_ms)
end
