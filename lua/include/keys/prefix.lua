-- The prefix of every key of the partition: the key of its facts without `meta`.
local function key_prefix()
  return string.sub(KEYS[1], 1, -5)
end
