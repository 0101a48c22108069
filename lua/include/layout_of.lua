-- include algorithms
-- The layout of a record with these counters: layout 1 has only calendars.
local function layout_of(checks)
  for number = 1, #checks do
    if checks[number].code ~= CALENDAR then
      return 2
    end
  end
  return 1
end
