-- include conduct_end
-- include keep_subjects
-- include list_ban
-- include save_conduct
-- Writes the violations that were counted, and the bans that they place. It is all that a refusal writes.
local function write_conduct(holders, checks, epoch, now, by_redis_clock)
  for number = 1, #checks do
    local check = checks[number]
    local punishment, holder = check.punishment, holders[check.scope_index]
    if punishment and punishment.moved then
      local kept = { [0] = holders[0], [check.scope_index] = holder }
      keep_subjects(kept, epoch, conduct_end(punishment), now, by_redis_clock)
      redis.call('HSET', holder.key, 'v' .. check.field, save_conduct(punishment))
      list_ban(check, holder.key, now, by_redis_clock)
    end
  end
end
