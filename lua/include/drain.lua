-- A bucket's level and fraction after `elapsed` ms: `units` of it drain in each `per_ms`. The level is level - fraction
-- / per_ms units.
local function drain(level, fraction, units, per_ms, elapsed)
  local rest = elapsed % per_ms
  local drained = units * ((elapsed - rest) / per_ms)
  if drained > level then
    return 0, 0
  end
  local parts = units * rest + fraction
  fraction = parts % per_ms
  level = level - drained - (parts - fraction) / per_ms
  if level <= 0 then
    return 0, 0
  end
  return level, fraction
end
