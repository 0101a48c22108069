-- include statuses
-- include clock
-- What every script reads first: the time and its partition's facts, which are the epoch, the last bucket swept, the
-- floor, and the further facts that the script names. Returns Redis's own time, the script's time and these facts; and
-- the alarm to answer, if the partition's memory is not of the epoch that the caller expects.
local function prelude(given, ...)
  local real, now = clock(given)
  local facts = redis.call('HMGET', KEYS[1], 'epoch', 'swept', 'floor', ...)
  if facts[1] ~= ARGV[1] or not facts[2] then
    return real, now, facts, { ALARM, real, now, '', facts[1] or '' }
  end
  return real, now, facts
end
