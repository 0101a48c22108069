-- Redis's own time in ms, and the time for the script: the test clock's if there is one.
local function clock(given)
  local time = redis.call('TIME')
  local real = time[1] * 1000 + math.floor(time[2] / 1000)
  return real, given == '' and real or tonumber(given)
end
