-- include algorithm_codes
-- include light_scope
-- Reads the counters of a record of layout 2: by counter its scope, field, window's start, flags and line, as layout 1
-- has them; the codes of those that do not count by the calendar, and their parameters, two each; and where all end in
-- the record. Nothing where one counts by another algorithm than a plain path knows, or stands in a light hash.
local function plain_counters(raw, at)
  local unpack_from, byte = struct.unpack, string.byte
  local count, places, codes, parameters = byte(raw, at), {}, {}, {}
  at = at + 1
  for number = 1, count do
    local place = 5 * number
    local code, parameter
    places[place - 4], places[place - 3], places[place - 1], code, parameter, at = unpack_from('<Bc8BBi8', raw, at)
    places[place - 2] = parameter
    if places[place - 1] ~= 1 or places[place - 4] >= LIGHT_SCOPE then
      return nil
    elseif code == CALENDAR then
      at = at + 8
    elseif code == FIXED_WINDOW or code == SLIDING_COUNTER then
      codes[number], parameters[2 * number - 1], parameters[2 * number], at = code, parameter, byte(raw, at), at + 1
    else
      return nil
    end
    places[place], at = byte(raw, at), at + 1
  end
  return places, codes, parameters, at
end
