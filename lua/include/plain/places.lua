-- include keys/prefix
-- include keys/tenant
-- include keys/subject
-- include plain/sum
-- Reads the counters of a record of layout 1, from its subjects on, into one list with five places each: scope, field, window's start, what is no longer
-- held and what is used more. Returns the list, how many counters it has, what to ask of the tenant's hash, its length, what to ask of the
-- subjects' hashes, and where the record's tail begins. Nothing where a line may be cut.
local function plain_places(raw, at, tenant, freed, used)
  local unpack_from, byte, prefix = struct.unpack, string.byte, key_prefix()
  local subjects_at = at + 1
  at = subjects_at + 13 * byte(raw, at)
  local list, count, place = { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }, byte(raw, at), 0
  local wanted, asked_count, subjects = { 'HMGET', tenant_key(prefix, tenant), 'h', 0, 0, 0, 0, 0, 0 }, 3, nil
  at = at + 1
  for _ = 1, count do
    local scope, field, began, flags, free, use
    scope, field, began, flags, at = unpack_from('<Bc8i8B', raw, at)
    if flags >= 32 then
      return nil
    end
    if flags == 1 then
      local line = byte(raw, at) + 1
      free, use, at = freed[line], used[line], at + 1
    else
      free = plain_sum(raw, flags, at, freed)
      use, at = plain_sum(raw, flags, at, used)
    end
    if scope == 0 then
      wanted[asked_count + 1], wanted[asked_count + 2] = field, 'q' .. field
      asked_count = asked_count + 2
    else
      subjects = subjects or {}
      local hash_at = subjects_at + 13 * (scope - 1)
      local asked = subjects[scope] or { 'HMGET', subject_key(prefix, tenant, string.sub(raw, hash_at, hash_at + 12)), 'h' }
      subjects[scope] = asked
      asked[#asked + 1] = field
    end
    list[place + 1], list[place + 2], list[place + 3], list[place + 4], list[place + 5] = scope, field, began, free, use
    place = place + 5
  end
  return list, count, wanted, asked_count, subjects, at
end
