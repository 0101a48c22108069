-- What nearly every check is: one alone, under one counter that counts by windows, in a hash that knows it and lives
-- long enough. Answers `B whether it refuses  i8 real time  i8 time` and the counter's cell, as it is written or as it
-- refuses; a text costs less than a list. Nothing where the check is anything else, or where the memory is of another
-- epoch: then nothing is written. It reads the time and the partition's facts by itself, for the same reason.
local function plain_check()
  local packed, call, unpack_from, pack = ARGV[5], redis.call, struct.unpack, struct.pack
  if string.byte(packed) ~= 2 then
    return nil
  end
  -- read
  local time, given, epoch = call('TIME'), ARGV[3], ARGV[1]
  local real = time[1] * 1000 + math.floor(time[2] / 1000)
  local now = given == '' and real or tonumber(given)
  local facts = call('HMGET', KEYS[1], 'epoch', 'swept', 'floor')
  local floor = facts[3]
  -- Start and end of its window, or its length and 1 where that is aligned, else 0.
  local _, _, valid_from, valid_until, needed_until, scope, field, capacity, need, start, stop =
    unpack_from('<BBi8i8i8Bc8i8i8i8i8', packed)
  local key = KEYS[2 + scope]
  local told = call('HMGET', key, 'h', field)
  local header, cell = told[1], told[2]
  if facts[1] ~= epoch or not facts[2] or not header or not cell or now < valid_from or now >= valid_until or real > tonumber(ARGV[2])
    or (floor and (real > now and real or now) < tonumber(floor)) then
    return nil
  end
  -- check
  local of_epoch, ends_at = unpack_from('<i8i8', header)
  local mark, used, reserved = unpack_from('<i8i8i8', cell)
  if of_epoch ~= tonumber(epoch) or (given == '' and needed_until + 3600000 > ends_at) or reserved ~= 0 then
    return nil
  end
  if stop > 1 then
    if mark > start then
      return nil
    elseif mark < start then
      mark, used = start, 0
    end
  elseif now < mark - start or now >= (stop == 1 and mark - mark % start or mark) + start then
    mark, used = now, 0
  end
  if need > 0 and need > capacity - used then
    return pack('<Bi8i8i8i8i8i8', 1, real, now, mark, used, 0, 0)
  end
  -- write
  cell = pack('<i8i8i8i8', mark, used + need, 0, 0)
  call('HSET', key, field, cell)
  return pack('<Bi8i8c0', 0, real, now, cell)
end
