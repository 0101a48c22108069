-- include integer
-- The list in which a hold of this expiry is swept, never a bucket that the sweep has finished.
local function due_key(prefix, expires_at, due_ms, swept)
  return prefix .. 'due:' .. integer(math.max(math.ceil(expires_at / due_ms), swept + 1))
end
