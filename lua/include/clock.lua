-- Real Redis time and the gate's time, both in unix ms; `given` is the test clock's, or empty.
local function clock(given)
  local time = redis.call('TIME')
  local real = time[1] * 1000 + math.floor(time[2] / 1000)
  if given == '' then
    return real, real
  end
  return real, tonumber(given)
end
