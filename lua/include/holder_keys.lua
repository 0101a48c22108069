-- The keys of a record's state hashes: the tenant's, then each subject's.
local function holder_keys(prefix, record)
  local tenant = prefix .. 'state:' .. record.tenant
  local keys = { tenant }
  for number, hash in ipairs(record.subjects) do
    keys[number + 1] = tenant .. ':' .. hash
  end
  return keys
end
