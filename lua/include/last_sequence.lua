-- include last_id
-- The sequence of the outbox's last entry in this epoch (given as text), -1 when the epoch has none.
local function last_sequence(outbox, epoch)
  local of_epoch, sequence = string.match(last_id(outbox), '^(%d+)%-(%d+)$')
  return of_epoch == epoch and tonumber(sequence) or -1
end
