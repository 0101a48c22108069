-- Reads a state hash's header into its holder: `i8 epoch  i8 restored at  i8 ask until  i8 outbox's sequence then`, and behind
-- these what read_new_counters reads. A negative epoch says that the hash waits for the ledger.
local function read_header(holder, header, epoch)
  local of_epoch
  of_epoch, holder.restored_at, holder.ask_until = struct.unpack('<i8i8i8', header)
  holder.warm, holder.waits = of_epoch == epoch, of_epoch == -epoch
  if #header > 32 then
    holder.new_counters = string.sub(header, 33)
  end
end
