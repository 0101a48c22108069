-- The key of the light counters that stand beside a state, by that state's key.
local function beside_key(state)
  return (string.gsub(state, '}:state:', '}:light:', 1))
end
