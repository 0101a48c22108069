-- The key of a tenant's light counters, or of those of one of its subjects (by its hash; '' for the tenant's).
local function light_key(prefix, tenant, hash)
  return prefix .. 'light:' .. tenant .. (hash == '' and '' or ':' .. hash)
end
