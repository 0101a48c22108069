-- The key of the log of a counter, by the key of the state that it counts for and its field.
local function log_key(state, field)
  return string.gsub(state, ':state:', ':log:', 1) .. ':' .. field
end
