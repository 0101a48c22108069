-- include keys/known_subjects
-- Whether a subject may have had use or holds before its tenant was restored. The filter has the subjects that did. Its
-- length is in the tenant's header: 0 where no subject did. Without the filter of that length, every subject may have.
local function knows_subject(tenant, holder)
  if holder.known ~= nil then
    return holder.known
  end
  local header = tenant.values[1]
  local length = #header >= 40 and struct.unpack('<i8', header, 33) or -1
  local filter = known_subjects_key(tenant.key)
  holder.known = length ~= 0
  if length > 0 and redis.call('STRLEN', filter) == length then
    local start, step = 0, 0
    for place = -12, -7 do
      start = start * 131 + string.byte(holder.key, place)
      step = step * 131 + string.byte(holder.key, place + 6)
    end
    for number = 0, 3 do
      if redis.call('GETBIT', filter, (start + number * step) % (length * 8)) == 0 then
        holder.known = false
        break
      end
    end
  end
  return holder.known
end
