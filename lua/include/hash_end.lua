-- When a subject's hash may end: an hour after it is needed, rounded, so that a later hold seldom moves it.
local function hash_end(needed_until, now)
  return math.ceil((math.max(needed_until, now) + 3600000) / 600000) * 600000
end
