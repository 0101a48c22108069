#!lua
-- The plainest script that could hold an amount under three limits: no replay, no epochs, no checks of its arguments.
-- KEYS     1 hold  2 list of the holds that end in one second  3 outbox  4 tenant's counters
-- ARGV     1 record  2 id  3 amount
-- returns  1 when held, 0 when refused
local CAPACITY, LIFE_MS = 1000000000000, 60000
local counters = redis.call('HMGET', KEYS[4], 'hour', 'day', 'month')
local write = { 'HSET', KEYS[4] }
for number, name in ipairs({ 'hour', 'day', 'month' }) do
  local window, consumed, reserved = 0, 0, 0
  if counters[number] then
    window, consumed, reserved = struct.unpack('<i8i8i8', counters[number])
  end
  reserved = reserved + ARGV[3]
  if consumed + reserved > CAPACITY then
    return 0
  end
  write[2 * number + 1] = name
  write[2 * number + 2] = struct.pack('<i8i8i8', window, consumed, reserved)
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', LIFE_MS)
redis.call('RPUSH', KEYS[2], ARGV[2])
redis.call('XADD', KEYS[3], '*', 'e', ARGV[1])
redis.call(unpack(write))
return 1
