-- include read_record
-- include read_body
-- The reservation of the third key, as far as a caller who is bound to a tenant ('' = to none) may know it.
local function find_record(epoch, bound)
  local record = read_record(redis.call('GET', KEYS[3]), epoch)
  if record then
    read_body(record)
    return (bound == '' or bound == record.tenant) and record or nil
  end
end
