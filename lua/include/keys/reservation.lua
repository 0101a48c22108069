-- The key of a reservation, by its id in hexadecimal digits.
local function reservation_key(prefix, hex)
  return prefix .. 'rsv:' .. hex
end
