-- Reads the punishment of a limit, packed in gate/conduct.rs: how long it remembers, at how many violations it bans (0
-- for never), how long the first ban lasts, how many thousandths of the one before a further one lasts, how long one
-- lasts at most, and what the limit is called in its bans. Of violations nothing is known yet.
local function read_punishment(blob, at)
  local memory, ban_at, first, factor, longest, name
  memory, ban_at, first, factor, longest, name, at = struct.unpack('<i8i8i8i8i8Bc0', blob, at)
  return {
    memory = memory, ban_at = ban_at, first = first, factor = factor, longest = longest, name = name, is_read = false, bans_key = false,
    since = 0, count = 0, banned_until = 0, bans = 0, recent = '', deed = 0, is_new_ban = false, moved = false,
  }, at
end
