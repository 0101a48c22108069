-- The keys of the state hashes, which a script gets from the key number `first` on: the tenant's, then each subject's.
local function state_keys(first)
  local keys = {}
  for number = first, #KEYS do
    keys[number - first + 1] = KEYS[number]
  end
  return keys
end
