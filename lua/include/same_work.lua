-- include keys/reservation
-- include read_record
-- include states
-- The reservation, in hexadecimal digits, that was made of the same work less than `within` ms ago; nothing where there
-- is none, or where it was given up: one that is released or has expired, or of which the ledger said so (`given_up`).
local function same_work(told, within, now, epoch, prefix, given_up)
  if not told then
    return nil
  end
  local of_epoch, made_at, hex = struct.unpack('<i8i8c32', told)
  if of_epoch ~= epoch or math.abs(now - made_at) >= within or hex == given_up then
    return nil
  end
  local record = read_record(redis.call('GET', reservation_key(prefix, hex)), epoch)
  if record and (record.state == STATE_RELEASED or record.state == STATE_EXPIRED) then
    return nil
  end
  local has_ended = record and record.state == STATE_RESERVED and record.expires_at <= now
  return not has_ended and hex or nil
end
