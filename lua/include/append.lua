-- Appends an event to the outbox: the first write of every script, as it alone can still fail. Returns its id.
local function append(outbox, epoch, event)
  return redis.call('XADD', outbox, epoch .. '-*', 'e', event)
end
