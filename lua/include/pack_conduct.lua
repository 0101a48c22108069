-- Packs what limits remember of whom they count: `B check, from 0  B deed  i8 violations  i8 bans  i8 banned until` of
-- each that remembers anything. What the next call is to them is open again.
local function pack_conduct(checks)
  local packed = ''
  for number = 1, #checks do
    local punishment = checks[number].punishment
    if punishment and (punishment.count > 0 or punishment.banned_until > 0) then
      packed = packed .. struct.pack('<BBi8i8i8', number - 1, punishment.deed, punishment.count, punishment.bans, punishment.banned_until)
      punishment.deed = 0
    end
  end
  return packed
end
