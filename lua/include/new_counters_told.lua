-- include read_new_counters
-- Packs, for a hash's header, the counters created inside their window, after a restore of `packed` (per counter `I4
-- length` and what read_new_counters reads). Of a suspended hash, the counters of earlier restores stay until their
-- window ends.
local function new_counters_told(packed, now, before)
  local told, given, at = '', {}, 1
  while at <= #packed do
    local length = struct.unpack('<I4', packed, at)
    given[string.sub(packed, at + 4, at + 11)] = true
    told = told .. struct.pack('<i8', now) .. string.sub(packed, at, at + 3 + length)
    at = at + 4 + length
  end
  local has_subjects = false
  if before then
    local counters
    counters, has_subjects = read_new_counters(before)
    for _, counter in ipairs(counters) do
      if not given[counter.field] and counter.window_end > now then
        told = told .. counter.packed
      end
    end
  end
  if told == '' and not has_subjects then
    return ''
  end
  return (has_subjects and '\1' or '\0') .. told
end
