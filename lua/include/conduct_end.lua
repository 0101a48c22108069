-- When nothing is remembered any more of the violations and bans of a punishment.
local function conduct_end(punishment)
  return math.max(punishment.since, punishment.banned_until) + punishment.memory
end
