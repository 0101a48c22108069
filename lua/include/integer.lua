-- A whole number as text: Lua's own conversion loses digits above 10^14.
local function integer(number)
  return string.format('%.0f', number)
end
