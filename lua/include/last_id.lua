-- The outbox's last id, or 0-0: what the ledger must have booked before it is asked.
local function last_id(outbox)
  local entry = redis.call('XREVRANGE', outbox, '+', '-', 'COUNT', 1)
  return entry[1] and entry[1][1] or '0-0'
end
