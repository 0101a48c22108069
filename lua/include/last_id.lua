-- The id of the outbox's last entry, 0-0 when it has none.
local function last_id(outbox)
  local entry = redis.call('XREVRANGE', outbox, '+', '-', 'COUNT', 1)[1]
  return entry and entry[1] or '0-0'
end
