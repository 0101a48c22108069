-- include body_of
-- include integer
-- include pack_record
-- include record_values
-- include states
-- Stores a light record that was changed, always whole, because no ledger has the rest of it: while open until it ends
-- by itself, otherwise for as long as its key is remembered, and at least a day if it was given up, so that the same
-- work may be submitted again for as long as that is guarded. Only open ones are on the list of what holds. Returns
-- what is stored.
local function store_held(key, holds, record, keyed_ms, unkeyed_ms)
  local values, format = record_values(record)
  local stored = pack_record(values, format, 0, body_of(record))
  if record.state == STATE_RESERVED then
    redis.call('SET', key, stored, 'KEEPTTL')
    redis.call('ZADD', holds, integer(record.expires_at), record.hex)
  else
    local DAY_MS, kept_ms = 86400000, tonumber(record.keyed and keyed_ms or unkeyed_ms)
    redis.call('SET', key, stored, 'PX', integer(record.state == STATE_CONSUMED and kept_ms or math.max(kept_ms, DAY_MS)))
    redis.call('ZREM', holds, record.hex)
  end
  return stored
end
