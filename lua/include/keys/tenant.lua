-- The key of a tenant's state.
local function tenant_key(prefix, tenant)
  return prefix .. 'state:' .. tenant
end
