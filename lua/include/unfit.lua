-- include statuses
-- Why nothing may be told to a hash that must be warm: another epoch, too late, or it is cold. Nothing where it may.
local function unfit(found, real, now, header, last)
  if found ~= ARGV[1] then
    return { ALARM, real, now, '', found or '' }
  end
  if real > tonumber(ARGV[2]) then
    return { TOO_LATE, real, now, '' }
  end
  if not header or struct.unpack('<i8', header) ~= tonumber(ARGV[1]) then
    return { COLD, real, now, last }
  end
end
