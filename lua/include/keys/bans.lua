-- include light_scope
-- The key of the list of a tenant's bans that limits have placed in this epoch (as text), by the key of the hash in
-- which a counter of this scope stands.
local function bans_key(state, scope_index, epoch)
  local of_tenant = scope_index % LIGHT_SCOPE > 0 and string.sub(state, 1, -15) or state
  return (string.gsub(of_tenant, '}:%l+:', '}:bans:' .. epoch .. ':', 1))
end
