-- include keys/tenant
-- The key of the state of a tenant's subject.
local function subject_key(prefix, tenant, hash)
  return tenant_key(prefix, tenant) .. ':' .. hash
end
