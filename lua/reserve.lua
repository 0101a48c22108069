#!lua
-- Holds amounts, or counts usage, if every limit and quota has room; all lines move together or none does.
--
-- KEYS  1 meta  2 outbox  3 reservation  4 the tenant's state  5… the subjects' states
-- ARGV  1 epoch  2 not_after (real ms)  3 now (test clock, ms, or empty)  4 mode: 1 all or nothing, 2 best effort,
--       3 dry run, 4 usage  5 valid from  6 valid until (ms)  7 ttl (ms)  8 longest life (ms)  9 1 once the ledger was asked
--       10 id (16 bytes)  11 id (hex)  12 prefix of due buckets  13 width of a due bucket (ms)  14 tombstone life (ms)
--       15 amounts (i8 a line)  16 checks (include/counters)  17 body
-- Returns {status, real time, now, …}: ALARM {epoch found} · REPLAYED {record, readings} · COLD {last id, tenant cold,
--       subjects, counters} · ASK_LEDGER {last id} · REFUSED and ALLOWED {readings, refusing counters, granted} ·
--       DONE {readings, granted, sequence, expiry}
-- Event reserve (1) or usage (2)
-- include status
-- include clock
-- include last_id
-- include record
-- include counters
-- include outbox
-- include due

-- read
local real, now = clock(ARGV[3])
local meta = redis.call('HMGET', KEYS[1], 'epoch', 'swept')
if meta[1] ~= ARGV[1] then
  return { ALARM, real, now, meta[1] or '' }
end
local epoch, mode = tonumber(ARGV[1]), tonumber(ARGV[4])
local checks = read_checks(ARGV[16])
local states = {}
for holder = 0, #KEYS - 4 do
  states[holder] = KEYS[4 + holder]
end
local seen = read_counters(states, #KEYS - 4, checks, epoch, now)
local body = ARGV[17]
local known = redis.call('GET', KEYS[3])
if known and mode ~= 3 then
  local record = read_record(known)
  if record.epoch == epoch then
    local tenant_end = 19 + string.byte(body, 19)
    if string.sub(known, record.body, record.body + 15) ~= string.sub(body, 1, 16)
      or string.sub(known, record.body + 18, record.body + tenant_end - 1) ~= string.sub(body, 19, tenant_end) then
      return { KEY_REUSED, real, now }
    end
    return { REPLAYED, real, now, known, pack_readings(checks) }
  end
  known = false
end

-- check
if real > tonumber(ARGV[2]) then
  return { TOO_LATE, real, now }
end
if now < tonumber(ARGV[5]) or now >= tonumber(ARGV[6]) or seen.stale then
  return { STALE_WINDOW, real, now }
end
if seen.cold then
  return {
    COLD, real, now, last_id(KEYS[2]), seen.tenant_cold, table.concat(seen.cold_holders),
    table.concat(seen.cold_counters),
  }
end
if ARGV[9] ~= '1' and mode ~= 3 and now < seen.ask_until then
  return { ASK_LEDGER, real, now, last_id(KEYS[2]) }
end
local asked, granted = {}, {}
local at, count = 1, string.len(ARGV[15]) / 8
for line = 1, count do
  asked[line], at = struct.unpack('<i8', ARGV[15], at)
  granted[line] = asked[line]
end
local refusing = {}
for index, check in ipairs(checks) do
  local need = 0
  for _, pair in ipairs(check) do
    need = need + asked[pair.line] * pair.weight
  end
  if check.consumed + check.reserved + need > check.limit then
    refusing[#refusing + 1] = string.char(index - 1)
  end
end
if #refusing > 0 then
  local room, any = {}, false
  for index, check in ipairs(checks) do
    room[index] = check.limit - check.consumed - check.reserved
  end
  for line = 1, count do
    local fits = asked[line]
    for index, check in ipairs(checks) do
      for _, pair in ipairs(check) do
        if pair.line == line then
          fits = math.min(fits, math.floor(room[index] / pair.weight))
        end
      end
    end
    granted[line] = math.max(fits, 0)
    any = any or granted[line] > 0
    for index, check in ipairs(checks) do
      for _, pair in ipairs(check) do
        if pair.line == line then
          room[index] = room[index] - granted[line] * pair.weight
        end
      end
    end
  end
  if mode ~= 2 or not any then
    local parts = {}
    for line = 1, count do
      parts[line] = struct.pack('<i8', granted[line])
    end
    return { REFUSED, real, now, pack_readings(checks), table.concat(refusing), table.concat(parts) }
  end
end
local granted_parts = {}
for line = 1, count do
  granted_parts[line] = struct.pack('<i8', granted[line])
end
local granted_packed = table.concat(granted_parts)
if mode == 3 then
  return { ALLOWED, real, now, pack_readings(checks), '', granted_packed }
end
local is_usage = mode == 4
local record = {
  state = is_usage and 2 or 1, count = count, late = 0, step = 1, epoch = epoch, born = now,
  expires = is_usage and now or now + tonumber(ARGV[7]), latest = now + tonumber(ARGV[8]), held = {}, consumed = {},
}
for line = 1, count do
  record.held[line] = is_usage and 0 or granted[line]
  record.consumed[line] = is_usage and granted[line] or 0
end
local due
if not is_usage then
  due = due_bucket(ARGV[12], tonumber(ARGV[13]), record.expires, tonumber(meta[2]))
  redis.call('LLEN', due)
end

-- write
local sequence = append(KEYS[2], epoch, is_usage and 2 or 1, now, ARGV[10], 0, pack_head(record, 0) .. body)
local head = pack_head(record, sequence)
if is_usage then
  local core_length = struct.unpack('<I2', body, 17)
  redis.call('SET', KEYS[3], head .. string.sub(body, 1, core_length), 'PX', ARGV[14])
else
  redis.call('SET', KEYS[3], head .. body)
  redis.call('RPUSH', due, ARGV[11])
end
local writes = {}
for _, check in ipairs(checks) do
  local need = 0
  for _, pair in ipairs(check) do
    need = need + granted[pair.line] * pair.weight
  end
  if is_usage then
    check.consumed = check.consumed + need
  elseif need > 0 then
    if check.reserved == 0 or check.next_end == 0 or record.expires < check.next_end then
      check.next_end = record.expires
    end
    check.reserved = check.reserved + need
  end
  local write = writes[check.holder]
  if not write then
    write = { 'HSET', states[check.holder] }
    writes[check.holder] = write
  end
  write[#write + 1] = check.field
  write[#write + 1] = struct.pack('<i8i8i8i8', check.start, check.consumed, check.reserved, check.next_end)
end
for _, write in pairs(writes) do
  redis.call(unpack(write))
end
return { DONE, real, now, pack_readings(checks), granted_packed, sequence, record.expires }
