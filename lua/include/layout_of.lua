-- include algorithms
-- The layout of a record with these counters: the first one knows no algorithm but the calendar.
local function layout_of(checks)
  for number = 1, #checks do
    if checks[number].code ~= CALENDAR then
      return 2
    end
  end
  return 1
end
