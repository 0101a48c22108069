-- The key of a reservation, by its id in hexadecimal digits, which say whether it is a light one.
local function reservation_key(prefix, hex)
  return prefix .. (string.sub(hex, 13, 13) == '4' and 'held:' or 'rsv:') .. hex
end
