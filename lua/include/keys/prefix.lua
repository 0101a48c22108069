-- What every key of the partition begins with: that of its facts without `meta`.
local function key_prefix()
  return string.sub(KEYS[1], 1, -5)
end
