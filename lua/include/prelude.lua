-- include statuses
-- include clock
-- What every script reads first: the time, and of its partition's facts the epoch, the last bucket swept, the floor and those that it
-- names besides. Returns Redis's own time, the time that the script goes by and these facts; and the answer, where the partition's memory is
-- not of the epoch that the caller expects.
local function prelude(given, ...)
  local real, now = clock(given)
  local facts = redis.call('HMGET', KEYS[1], 'epoch', 'swept', 'floor', ...)
  if facts[1] ~= ARGV[1] or not facts[2] then
    return real, now, facts, { ALARM, real, now, '', facts[1] or '' }
  end
  return real, now, facts
end
