-- include keys/bans
-- Reads what a limit with a punishment remembers of whom it counts, from the field `v` and the counter's: `i8 since  i8
-- violations  i8 banned until  i8 bans`, then of each violation of the last second `i8 at  c16 call`. Violations count
-- until the memory has passed since the first of them; a ban makes the next one longer until it has passed since its
-- end. It also reads the list of bans, so that its type is checked before the first write.
local function read_conduct(check, state, is_warm, now, epoch)
  local punishment = check.punishment
  if not punishment or punishment.is_read then
    return
  end
  punishment.is_read, punishment.since = true, now
  punishment.bans_key = bans_key(state, check.scope_index, epoch)
  redis.call('ZCARD', punishment.bans_key)
  local raw = is_warm and redis.call('HGET', state, 'v' .. check.field)
  if not raw then
    return
  end
  local since, count, banned_until, bans, at = struct.unpack('<i8i8i8i8', raw)
  punishment.recent = string.sub(raw, at)
  if now < since + punishment.memory then
    punishment.since, punishment.count = since, count
  end
  if now < banned_until + punishment.memory then
    punishment.banned_until, punishment.bans = banned_until, bans
  end
end
