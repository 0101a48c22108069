-- Redis's own time in ms, and the time the script goes by: the test clock's where one is given.
local function clock(given)
  local time = redis.call('TIME')
  local real = time[1] * 1000 + math.floor(time[2] / 1000)
  return real, given == '' and real or tonumber(given)
end
