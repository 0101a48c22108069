-- The whole square root of a whole number.
local function square_root(number)
  local root = math.floor(math.sqrt(number))
  return root * root > number and root - 1 or root
end
