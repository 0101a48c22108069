-- include read_record
-- include read_body
-- The reservation of the third key, unless the caller is bound to another tenant ('' = to none).
local function find_record(epoch, bound)
  local record = read_record(redis.call('GET', KEYS[3]), epoch)
  if record then
    read_body(record)
    record.hex = string.sub(KEYS[3], -32)
    return (bound == '' or bound == record.tenant) and record or nil
  end
end
