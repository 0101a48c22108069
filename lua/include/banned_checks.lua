-- include deeds
-- Which checks, from 0 and as bytes, are under a ban that their limit has placed, and for how long each still is.
local function banned_checks(checks, now)
  local banned, waits = '', {}
  for number = 1, #checks do
    local punishment = checks[number].punishment
    if punishment and now < punishment.banned_until then
      punishment.deed = DEED_UNDER_BAN
      banned = banned .. string.char(number - 1)
      waits[#waits + 1] = punishment.banned_until - now
    end
  end
  return banned, waits
end
