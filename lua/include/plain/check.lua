-- include statuses
-- What nearly every check is: one alone, under one counter that counts by windows, in a hash that knows it and lives
-- long enough. Answers the counter's cell, as it is written or as it refuses. Nothing where the check is anything else:
-- then nothing is written.
local function plain_check(real, now, floor)
  local packed, call, unpack_from = ARGV[6], redis.call, struct.unpack
  if string.byte(packed) ~= 2 then
    return nil
  end
  -- read
  -- Start and end of its window, or its length and 1 where that is aligned, else 0.
  local _, _, valid_from, valid_until, needed_until, scope, field, capacity, need, start, stop =
    unpack_from('<BBi8i8i8Bc8i8i8i8i8', packed)
  local key = KEYS[2 + scope]
  local told = call('HMGET', key, 'h', field)
  local header, cell = told[1], told[2]
  if not header or not cell or now < valid_from or now >= valid_until or real > tonumber(ARGV[2])
    or (floor and (real > now and real or now) < tonumber(floor)) then
    return nil
  end
  -- check
  local of_epoch, ends_at = unpack_from('<i8i8', header)
  local mark, used, reserved = unpack_from('<i8i8i8', cell)
  if of_epoch ~= tonumber(ARGV[1]) or (ARGV[3] == '' and needed_until + 3600000 > ends_at) or reserved ~= 0 then
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
    return { DONE, real, now, '', '\0', struct.pack('<i8i8i8i8', mark, used, 0, 0) }
  end
  -- write
  cell = struct.pack('<i8i8i8i8', mark, used + need, 0, 0)
  call('HSET', key, field, cell)
  return { DONE, real, now, '', '', cell }
end
