-- Reads what a call asks of its subjects' hashes, by scope. Returns whether each of them is warm and, where one is given, lives until then.
local function plain_subjects(subjects, epoch, lives_until)
  for scope, asked in pairs(subjects) do
    local told = redis.call(unpack(asked))
    local header = told[1]
    if not header or struct.unpack('<i8', header) ~= epoch then
      return false
    end
    if lives_until and (#header < 40 or struct.unpack('<i8', header, 33) < lives_until) then
      return false
    end
    told.at, told.writes = 1, { 'HSET', asked[2] }
    subjects[scope] = told
  end
  return true
end
