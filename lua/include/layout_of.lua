-- include algorithms
-- include light_scope
-- The layout of a record with these counters: layout 1 has only calendars, and none among the light counters of a
-- booked call.
local function layout_of(checks)
  for number = 1, #checks do
    if checks[number].code ~= CALENDAR or checks[number].scope_index >= LIGHT_SCOPE then
      return 2
    end
  end
  return 1
end
