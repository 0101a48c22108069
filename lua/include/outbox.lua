-- Appends an event (layout: src/domain/event.rs) and returns its sequence. The one write that can still fail: first.
local function append(outbox, epoch, kind, now, id, flags, rest)
  local event = struct.pack('<BBi8', 1, kind, now) .. id .. struct.pack('<B', flags) .. rest
  local added = redis.call('XADD', outbox, string.format('%.0f-*', epoch), 'e', event)
  return tonumber(string.sub(added, string.find(added, '-', 1, true) + 1))
end
