-- Reads the hashes of a call, by scope, with the commands in `asked`. Returns for each the command, its answer, the
-- fields to write, and how many of its counters were met. Returns nothing if a hash is not warm or, if `lives_until` is
-- given, a subject's hash ends earlier.
local function plain_hashes(asked, epoch, lives_until)
  local hashes = {}
  for scope, wanted in pairs(asked) do
    local told = redis.call(unpack(wanted))
    local header = told[1]
    if not header or struct.unpack('<i8', header) ~= epoch then
      return nil
    end
    if lives_until and scope > 0 and (#header < 40 or struct.unpack('<i8', header, 33) < lives_until) then
      return nil
    end
    hashes[scope] = { asked = wanted, told = told, writes = { 'HSET', wanted[2] }, met = 0 }
  end
  return hashes
end
