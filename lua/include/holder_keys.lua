-- include keys/tenant
-- include keys/subject
-- The keys of a record's state hashes: the tenant's, then each subject's.
local function holder_keys(prefix, record)
  local keys = { tenant_key(prefix, record.tenant) }
  for number, hash in ipairs(record.subjects) do
    keys[number + 1] = subject_key(prefix, record.tenant, hash)
  end
  return keys
end
