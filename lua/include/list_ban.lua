-- include light_scope
-- include integer
-- Adds a new ban to the list of those that limits have placed, which has for each when it ends and `<limit>~<s, or l
-- for a light counter><field><the subject's hash>`. Ended ones leave it. By a test clock it never ends by itself.
local function list_ban(check, state, now, by_redis_clock)
  local punishment, scope_index = check.punishment, check.scope_index
  if not punishment.is_new_ban then
    return
  end
  local key, subject = punishment.bans_key, scope_index % LIGHT_SCOPE > 0 and string.sub(state, -12) or ''
  local whose = string.match(state, '}:(%l)') .. check.field .. subject
  redis.call('ZREMRANGEBYSCORE', key, '-inf', integer(now))
  redis.call('ZADD', key, integer(punishment.banned_until), punishment.name .. '~' .. whose)
  if by_redis_clock then
    local last = redis.call('ZREVRANGE', key, 0, 0, 'WITHSCORES')
    redis.call('PEXPIREAT', key, integer(tonumber(last[2])))
  end
end
