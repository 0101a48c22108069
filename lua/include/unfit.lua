-- include statuses
-- include out_of_time
-- The answer where a script may not write to a hash that must be warm: too late, or the hash is cold. Nothing where it
-- may.
local function unfit(real, now, header, last)
  local late = out_of_time(real, now)
  if late then
    return late
  end
  if not header or struct.unpack('<i8', header) ~= tonumber(ARGV[1]) then
    return { COLD, real, now, last }
  end
end
