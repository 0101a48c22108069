-- The due bucket of an expiry: never one that the sweep has finished.
local function due_bucket(prefix, bucket_ms, expires, swept)
  local bucket = math.ceil(expires / bucket_ms)
  if bucket <= swept then
    bucket = swept + 1
  end
  return prefix .. string.format('%.0f', bucket)
end
