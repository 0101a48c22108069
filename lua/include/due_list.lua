-- include keys/due
-- The key of the list in which a hold of this expiry is swept, never one of a bucket that the sweep has finished. It
-- reads the list, so that its type is checked before the first write.
local function due_list(prefix, expires_at, due_ms, swept)
  local due = due_key(prefix, math.max(math.ceil(expires_at / due_ms), swept + 1))
  redis.call('LLEN', due)
  return due
end
