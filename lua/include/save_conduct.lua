-- Packs what read_conduct reads.
local function save_conduct(punishment)
  return struct.pack('<i8i8i8i8c0', punishment.since, punishment.count, punishment.banned_until, punishment.bans, punishment.recent)
end
