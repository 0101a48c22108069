-- What the key of a log has in place of the kind of the key beside which it stands.
local KIND_OF_LOG = { state = '}:log:', light = '}:light-log:' }
-- The key of the log of a counter, by the key of the state or of the light counters that it counts for and its field.
local function log_key(beside, field)
  return string.gsub(beside, '}:(%l+):', KIND_OF_LOG, 1) .. ':' .. field
end
