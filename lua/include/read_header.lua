-- Reads a state hash's header: `i8 epoch  i8 restored at  i8 ask until  i8 outbox's sequence then  i8 length of the
-- tenant's filter of subjects, or when the subject's hash ends`, and then what read_new_counters reads. With a negative
-- epoch the hash is suspended: it waits for events up to that sequence.
local function read_header(holder, header, epoch)
  local of_epoch
  of_epoch, holder.restored_at, holder.ask_until = struct.unpack('<i8i8i8', header)
  holder.warm, holder.waits = of_epoch == epoch, of_epoch == -epoch
  if #header > 40 then
    holder.new_counters = string.sub(header, 41)
  end
end
