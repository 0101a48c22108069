-- include keys/prefix
-- include keys/tenant
-- include keys/subject
-- The commands that read the hashes of a record's counters, by scope: headers and counters, and after the tenant's
-- counters the capacities of those that may be quotas. Also returns by counter where its capacity is in the answer.
local function plain_places(raw, subjects_at, tenant, places, count, may_be_quota)
  local prefix, capacity_at = key_prefix(), {}
  local of_tenant = { 'HMGET', tenant_key(prefix, tenant), 'h' }
  local wanted = { [0] = of_tenant }
  for number = 1, count do
    local scope = places[5 * number - 4]
    local list = wanted[scope]
    if not list then
      local hash_at = subjects_at + 13 * (scope - 1)
      list = { 'HMGET', subject_key(prefix, tenant, string.sub(raw, hash_at, hash_at + 12)), 'h' }
      wanted[scope] = list
    end
    list[#list + 1] = places[5 * number - 3]
  end
  for number = 1, count do
    if may_be_quota[number] and places[5 * number - 4] == 0 then
      of_tenant[#of_tenant + 1] = 'q' .. places[5 * number - 3]
      capacity_at[number] = #of_tenant - 2
    end
  end
  return wanted, capacity_at
end
