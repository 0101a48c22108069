-- Appends an event to the outbox. It is the first write of every script, because only it can still fail. Returns the
-- event's id.
local function append(outbox, epoch, event)
  return redis.call('XADD', outbox, epoch .. '-*', 'e', event)
end
