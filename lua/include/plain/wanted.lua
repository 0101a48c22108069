-- The commands that read the hashes of a call with counters of subjects, by scope: headers and counters, and of the
-- tenant's hash the capacities of quotas.
local function plain_wanted(packed, scopes_at, fields, count, tenant_key_at)
  local wanted = { [0] = { 'HMGET', KEYS[tenant_key_at], 'h' } }
  for number = 1, #fields - 1 do
    local scope = number > count and 0 or string.byte(packed, scopes_at + number)
    local list = wanted[scope] or { 'HMGET', KEYS[tenant_key_at + scope], 'h' }
    wanted[scope] = list
    list[#list + 1] = fields[number]
  end
  return wanted
end
