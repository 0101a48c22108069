-- include cell
-- include hash_end
-- include integer
-- sliding_log: by a list of all that was admitted. It has no cell but a key of its own, a sorted set: an entry for each
-- reservation, by when it was made (`c32 id in hex  i8 held  i8 consumed`; none where both are 0), and the sums of all
-- entries, at -1 (`i8 epoch  i8 consumed  i8 reserved  i8 next end`). A log of another epoch counts as absent.
-- parameters  i8 length in ms  i8 entries at most
local sliding_log = { is_restorable = false, has_log = true }
local PAGE, SUMS_AT = 64, -1

-- Reads a counter's parameters. Returns where they end.
function sliding_log.read(counter, packed, at)
  counter.length, counter.entries_max, at = struct.unpack('<i8i8', packed, at)
  return at
end

local function entry_of(counter)
  return struct.pack('<c32i8i8', counter.id, counter.entry_held, counter.entry_consumed)
end

-- Whether the log still has the entry of the work for which it is read. One that holds and consumed nothing was taken
-- out, and may come back unless the memory was lost since: before the epoch began or, in an epoch that began under an
-- earlier version, before its hash was restored.
local function has_entry(counter, told_at)
  local is_within = counter.counted_at > counter.now - counter.length
  if not is_within or not counter.id then
    return false
  elseif counter.entry_held + counter.entry_consumed == 0 then
    local since = redis.call('HGET', KEYS[1], 'since')
    return counter.counted_at >= (since and tonumber(since) or told_at)
  end
  counter.was = entry_of(counter)
  local score = not counter.is_anew and redis.call('ZSCORE', counter.log, counter.was)
  return score and tonumber(score) == counter.counted_at or false
end

-- Takes what has slid out off the figures in memory, a page after the other. The first page is what an admission
-- removes.
local function slide(counter)
  local offset, page = 0, nil
  repeat
    page = redis.call('ZRANGEBYSCORE', counter.log, 0, counter.now - counter.length, 'LIMIT', offset, PAGE)
    local consumed, held = 0, 0
    for _, entry in ipairs(page) do
      local entry_held, entry_consumed = struct.unpack('<i8i8', entry, 33)
      consumed, held = consumed + entry_consumed, held + entry_held
    end
    if offset == 0 then
      counter.gone, counter.gone_consumed, counter.gone_held = page, consumed, held
    end
    counter.consumed, counter.reserved = counter.consumed - consumed, counter.reserved - held
    counter.live = counter.live - #page
    offset = offset + PAGE
  until #page < PAGE
  if counter.reserved == 0 then
    counter.next_end = 0
  end
end

-- Reads the log as it counts work of one instant: all entries that are younger than its length. When the clock went
-- back, new work counts at its time, unless the newest entry lies further ahead than that.
function sliding_log.load(counter, _, counted_at, admits, now, epoch, told_at)
  counter.began, counter.counted_at, counter.admits, counter.now, counter.epoch = counted_at, counted_at, admits, now, epoch
  counter.gone, counter.gone_consumed, counter.gone_held = {}, 0, 0
  counter.all_consumed, counter.all_held, counter.count, counter.live, counter.newest = 0, 0, 0, 0, 0
  counter.sums = redis.call('ZRANGE', counter.log, 0, 0)[1]
  local newest = redis.call('ZRANGE', counter.log, -1, -1, 'WITHSCORES')[2]
  counter.is_anew = true
  if counter.sums and struct.unpack('<i8', counter.sums) == epoch and not (admits and tonumber(newest) >= now + counter.length) then
    local _, consumed, reserved, next_end = struct.unpack('<i8i8i8i8', counter.sums)
    counter.is_anew, counter.newest = false, tonumber(newest)
    counter.count = redis.call('ZCARD', counter.log) - 1
    counter.live = counter.count
    counter.all_consumed, counter.all_held = consumed, reserved
    counter.consumed, counter.reserved, counter.next_end = consumed, reserved, next_end
    slide(counter)
  end
  if admits then
    counter.id, counter.entry_held, counter.entry_consumed = nil, 0, 0
  else
    counter.current = has_entry(counter, told_at)
  end
end

-- Whether it still counts the work for which it was read.
function sliding_log.is_open(counter)
  return counter.current
end

local function is_full(counter)
  return counter.admits and counter.live >= counter.entries_max
end

-- How many more units fit: none for new work where the log is full.
function sliding_log.room(counter, capacity)
  local left = cell.room(counter, capacity)
  return is_full(counter) and cell.is_bounded(capacity) and math.min(left, 0) or left
end

-- When the last unit has slid out.
function sliding_log.resets_at(counter)
  local is_empty = counter.consumed + counter.reserved == 0
  return is_empty and counter.now or math.max(counter.newest + counter.length, counter.now)
end

-- How long until so many units may fit, in ms; -1 for never. Where holds are in the way, the end of the next hold may
-- help before they slide out.
function sliding_log.wait(counter, need, now)
  if need > counter.capacity then
    return -1
  end
  local without_holds, with_holds, slots = now, now, now
  local used = need - counter.capacity + counter.consumed
  local all, full = used + counter.reserved, counter.live - counter.entries_max + 1
  local offset, page = 0, { true }
  while #page > 0 and (used > 0 or all > 0 or full > 0) do
    local after = '(' .. integer(now - counter.length)
    page = redis.call('ZRANGEBYSCORE', counter.log, after, '+inf', 'WITHSCORES', 'LIMIT', offset, PAGE)
    for at = 1, #page, 2 do
      local held, consumed = struct.unpack('<i8i8', page[at], 33)
      local slides_out_at = tonumber(page[at + 1]) + counter.length
      without_holds = used > 0 and slides_out_at or without_holds
      with_holds = all > 0 and slides_out_at or with_holds
      slots = full > 0 and slides_out_at or slots
      used, all, full = used - consumed, all - consumed - held, full - 1
    end
    offset = offset + PAGE
  end
  if counter.reserved > 0 then
    local hold_ends_at = counter.next_end > now and counter.next_end or now + 1000
    with_holds = math.min(with_holds, math.max(without_holds, hold_ends_at))
    slots = math.min(slots, math.max(now, hold_ends_at))
  end
  return math.max(with_holds, slots) - now
end

-- Moves the entry in memory.
local function move(counter, held, consumed)
  counter.entry_held, counter.entry_consumed = counter.entry_held + held, counter.entry_consumed + consumed
  counter.all_held, counter.all_consumed = counter.all_held + held, counter.all_consumed + consumed
  counter.newest = math.max(counter.newest, counter.counted_at)
end

-- Holds units until `ends_at`.
function sliding_log.hold(counter, units, ends_at)
  move(counter, units, 0)
  cell.hold(counter, units, ends_at)
end

-- Counts units that were not held.
function sliding_log.charge(counter, units)
  move(counter, 0, units)
  cell.charge(counter, units)
end

-- Returns units that were held.
function sliding_log.give_back(counter, units)
  move(counter, -units, 0)
  cell.give_back(counter, units)
end

-- Counts units that were held.
function sliding_log.settle(counter, units)
  move(counter, -units, units)
  cell.settle(counter, units)
end

-- Adds an entry. Work whose record was forgotten may come again with the same figures: both count, and the older one
-- has no id any more.
local function add(counter, entry)
  if redis.call('ZADD', counter.log, 'NX', counter.counted_at, entry) == 0 then
    local before = redis.call('ZSCORE', counter.log, entry)
    local nameless = string.format('%032.0f', before) .. string.sub(entry, 33)
    redis.call('ZADD', counter.log, before, nameless, counter.counted_at, entry)
  end
end

-- Writes the entry and the sums in place of those before. An admission takes out what has slid out, a page at most. One
-- that a full log does not refuse is not counted.
function sliding_log.store(counter, by_redis_clock)
  if is_full(counter) then
    return
  end
  local log, removed = counter.log, { 'ZREM', counter.log }
  local entry = counter.entry_held + counter.entry_consumed > 0 and entry_of(counter)
  local is_over = counter.is_anew or (counter.admits and counter.live == 0)
  if is_over then
    redis.call('UNLINK', log)
    counter.count, counter.sums, counter.was = 0, nil, nil
    counter.all_held, counter.all_consumed = counter.entry_held, counter.entry_consumed
  elseif counter.admits then
    counter.all_held, counter.all_consumed = counter.all_held - counter.gone_held, counter.all_consumed - counter.gone_consumed
    for _, gone in ipairs(counter.gone) do
      removed[#removed + 1] = gone
    end
  end
  if counter.was and counter.was ~= entry then
    removed[#removed + 1] = counter.was
  end
  local is_added = entry and entry ~= counter.was
  if counter.count - (#removed - 2) + (is_added and 1 or 0) == 0 then
    redis.call('UNLINK', log)
    return
  end
  local sums = struct.pack('<i8i8i8i8', counter.epoch, counter.all_consumed, counter.all_held, counter.next_end)
  if counter.sums and counter.sums ~= sums then
    removed[#removed + 1] = counter.sums
  end
  if #removed > 2 then
    redis.call(unpack(removed))
  end
  redis.call('ZADD', log, SUMS_AT, sums)
  if is_added then
    add(counter, entry)
  end
  if by_redis_clock then
    redis.call('PEXPIREAT', log, integer(hash_end(counter.newest + counter.length, counter.now)))
  end
end

sliding_log.need, sliding_log.held, sliding_log.most = cell.need, cell.held, sliding_log.room

return sliding_log
