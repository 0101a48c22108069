-- Reads the punishment of a limit, packed in gate/conduct.rs: how long it remembers, at how many violations it bans (0
-- for never), how long the first ban lasts, how many thousandths of the one before a further one lasts, how long one
-- lasts at most, whether instances have shares of the counter, and what the limit is called in its bans. Of violations
-- nothing is known yet.
local function read_punishment(blob, at)
  local memory, ban_at, first, factor, longest, is_shared, name
  memory, ban_at, first, factor, longest, is_shared, name, at = struct.unpack('<i8i8i8i8i8BBc0', blob, at)
  return {
    memory = memory, ban_at = ban_at, first = first, factor = factor, longest = longest, is_shared = is_shared == 1, name = name, is_read = false, bans_key = false,
    since = 0, count = 0, banned_until = 0, bans = 0, recent = '', deed = 0, is_new_ban = false, moved = false,
  }, at
end
