-- The key of the filter of a tenant's subjects, by the key of the tenant's state.
local function known_subjects_key(state)
  return (string.gsub(state, ':state:', ':known:', 1))
end
