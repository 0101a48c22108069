-- include deeds
-- include ban_length
-- The most violations of the last second of which it is kept which calls they were.
local RECENT_MAX = 64
-- Counts a refusal, in memory, for each of the checks that refuse and have a punishment: those for which no part would
-- do, where a part is enough. A share that an instance has is no fault of the caller: under a limit with shares only
-- what is consumed counts. A call that was refused less than a second ago is the same violation; one without an id
-- ('') never is. The last one before a ban places it.
local function count_violations(checks, refusing, amounts, any_part, is_usage, id, now)
  for place = 1, #refusing do
    local check = checks[string.byte(refusing, place) + 1]
    local punishment, is_counted = check.punishment, check.punishment ~= false
    if punishment and (any_part or punishment.is_shared) then
      local need, least = check.algorithm.need(check, amounts, is_usage)
      local room = check.algorithm.room(check, check.capacity)
      is_counted = (any_part and least or need) > (punishment.is_shared and room + check.reserved or room)
    end
    local recent = ''
    for at = 1, is_counted and #punishment.recent or 0, 24 do
      if math.abs(now - struct.unpack('<i8', punishment.recent, at)) < 1000 then
        recent = recent .. string.sub(punishment.recent, at, at + 23)
        is_counted = is_counted and (id == '' or string.sub(punishment.recent, at + 8, at + 23) ~= id)
      end
    end
    if is_counted then
      if id ~= '' then
        recent = string.sub(recent .. struct.pack('<i8c0', now, id), -24 * RECENT_MAX)
      end
      if punishment.count == 0 then
        punishment.since = now
      end
      punishment.recent, punishment.count, punishment.moved, punishment.deed = recent, punishment.count + 1, true, DEED_VIOLATION
      if punishment.ban_at > 0 and punishment.count >= punishment.ban_at then
        punishment.banned_until = now + ban_length(punishment)
        punishment.count, punishment.since, punishment.bans = 0, now, punishment.bans + 1
        punishment.deed, punishment.is_new_ban = DEED_LAST_VIOLATION, true
      end
    end
  end
end
