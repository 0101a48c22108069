-- How long until `amount` of a bucket has drained, in ms; never more than 9e15, so that it can be added to a time.
local function drain_wait(amount, fraction, units, per_ms)
  local rest = amount % units
  return math.min((amount - rest) / units * per_ms + math.ceil((rest * per_ms - fraction) / units), 9e15)
end
