-- include integer
-- The key of the list of reservations that are due in this bucket.
local function due_key(prefix, bucket)
  return prefix .. 'due:' .. integer(bucket)
end
