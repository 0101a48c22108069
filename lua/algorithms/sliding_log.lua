-- include cell
-- include hash_end
-- include integer
-- sliding_log: by a list of all that was admitted. It has no cell but a key of its own, a sorted set: an entry for each
-- reservation, by when it was made (`c32 id in hex  i8 held  i8 consumed`; none where both are 0), and the sums of all
-- entries, at -1 (`i8 epoch  i8 consumed  i8 reserved  i8 next end  i8 newest entry  i8 entries  i8 end of the key, or
-- 0`; older versions write the first four). A log of another epoch counts as absent.
-- parameters  i8 length in ms  i8 entries at most
local sliding_log = { is_restorable = false, has_log = true }
-- What is read at once: the sums and 64 entries.
local PAGE, SUMS_AT = 65, '-1'

-- Reads a counter's parameters. Returns where they end.
function sliding_log.read(counter, packed, at)
  counter.length, counter.entries_max, at = struct.unpack('<i8i8', packed, at)
  return at
end

-- A name for an entry without an id, by a number and a time.
local function nameless(number, time)
  return string.format('%016.0f%016.0f', number, time)
end

-- The entry of the work. A check has no id: those of one call are one entry.
local function entry_of(counter)
  local id = counter.id or nameless(0, counter.counted_at)
  return struct.pack('<c32i8i8', id, counter.entry_held, counter.entry_consumed)
end

local texts = {}
-- A time as text. The logs of a call are asked by the same few.
local function text_of(time)
  local text = texts[time] or integer(time)
  texts[time] = text
  return text
end

-- When the newest entry was made.
local function newest_of(counter)
  return tonumber(redis.call('ZRANGE', counter.log, -1, -1, 'WITHSCORES')[2])
end

-- What the sums of an older version lack: the newest entry, how many there are, and when the log ends by itself.
local function read_rest(counter, sums)
  if #sums > 32 then
    return struct.unpack('<i8i8i8', sums, 33)
  end
  return newest_of(counter), redis.call('ZCARD', counter.log) - 1, 0
end

-- Whether the log still has the entry of the work for which it is read. One that holds and consumed nothing was taken
-- out, and may come back unless the memory was lost since: before the epoch began or, in an epoch that began under an
-- earlier version, before its hash was restored.
local function has_entry(counter, told_at)
  if counter.entry_held + counter.entry_consumed == 0 then
    local since = redis.call('HGET', KEYS[1], 'since')
    return counter.counted_at >= (since and tonumber(since) or told_at)
  end
  local entries, entry = counter.entries, entry_of(counter)
  local score = not entries.is_anew and redis.call('ZSCORE', counter.log, entry)
  entries.was = entry
  return score and tonumber(score) == counter.counted_at or false
end

-- The next of what has slid out, behind so many members. The sums stand before all entries.
local function page_of(counter, offset)
  local until_ms = math.max(counter.entries.now - counter.length, 0)
  return redis.call('ZRANGEBYSCORE', counter.log, SUMS_AT, text_of(until_ms), 'LIMIT', offset, PAGE)
end

-- Takes what has slid out off the figures in memory, a page after the other. Who writes to the log takes the first page
-- out of it, so that the others are left in its sums.
local function slide(counter, page)
  local entries, first, offset = counter.entries, 2, PAGE
  entries.gone = #page - 1
  while page do
    local consumed, held = 0, 0
    for at = first, #page do
      local entry_held, entry_consumed = struct.unpack('<i8i8', page[at], 33)
      consumed, held = consumed + entry_consumed, held + entry_held
    end
    if first == 1 then
      entries.left_consumed, entries.left_held = entries.left_consumed + consumed, entries.left_held + held
    end
    counter.consumed, counter.reserved = counter.consumed - consumed, counter.reserved - held
    entries.live = entries.live - #page + first - 1
    page = #page == PAGE and page_of(counter, offset)
    first, offset = 1, offset + PAGE
  end
  if counter.reserved == 0 then
    counter.next_end = 0
  end
end

-- Reads the log as it counts work of one instant: all entries that are younger than its length. Work that has slid out
-- itself moves nothing in it, and nothing is read for it. When the clock went back, new work counts at its time, unless
-- the newest entry lies further ahead than that.
function sliding_log.load(counter, _, counted_at, admits, now, epoch, told_at)
  local entries = {
    is_anew = true, admits = admits, now = now, epoch = epoch, count = 0, live = 0, newest = 0, ends_at = 0, gone = 0, left_consumed = 0, left_held = 0,
    was = false,
  }
  counter.began, counter.counted_at, counter.entries, counter.current = counted_at, counted_at, entries, false
  if not admits and not (counter.id and counted_at > now - counter.length) then
    return
  end
  local page = page_of(counter, '0')
  local sums = page[1]
  if sums then
    local of_epoch, consumed, reserved, next_end = struct.unpack('<i8i8i8i8', sums)
    local newest, count, ends_at = read_rest(counter, sums)
    if of_epoch == epoch and not (admits and newest >= now + counter.length) then
      entries.is_anew, entries.newest, entries.count, entries.live, entries.ends_at = false, newest, count, count, ends_at
      counter.consumed, counter.reserved, counter.next_end = consumed, reserved, next_end
      slide(counter, page)
    end
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
  return counter.entries.admits and counter.entries.live >= counter.entries_max
end

-- How many more units fit: none for new work where the log is full.
function sliding_log.room(counter, capacity)
  local left = cell.room(counter, capacity)
  return is_full(counter) and cell.is_bounded(capacity) and math.min(left, 0) or left
end

-- When the last unit has slid out.
function sliding_log.resets_at(counter)
  local entries, is_empty = counter.entries, counter.consumed + counter.reserved == 0
  return is_empty and entries.now or math.max(entries.newest + counter.length, entries.now)
end

-- How long until so many units may fit, in ms; -1 for never. Where holds are in the way, the end of the next hold may
-- help before they slide out. What checks of the same call have counted slides out last.
function sliding_log.wait(counter, need, now)
  if need > counter.capacity then
    return -1
  end
  local without_holds, with_holds, slots = now, now, now
  local used = need - counter.capacity + counter.consumed
  local all, full = used + counter.reserved, counter.entries.live - counter.entries_max + 1
  local function slide_out(held, consumed, counted_at)
    local slides_out_at = counted_at + counter.length
    without_holds = used > 0 and slides_out_at or without_holds
    with_holds = all > 0 and slides_out_at or with_holds
    slots = full > 0 and slides_out_at or slots
    used, all, full = used - consumed, all - consumed - held, full - 1
  end
  local offset, page = 0, { true }
  while #page > 0 and (used > 0 or all > 0 or full > 0) do
    -- The sums stand before 0, all entries after it.
    local after = '(' .. integer(math.max(now - counter.length, 0))
    page = redis.call('ZRANGEBYSCORE', counter.log, after, '+inf', 'WITHSCORES', 'LIMIT', offset, PAGE)
    for at = 1, #page, 2 do
      local held, consumed = struct.unpack('<i8i8', page[at], 33)
      slide_out(held, consumed, tonumber(page[at + 1]))
    end
    offset = offset + PAGE
  end
  slide_out(counter.entry_held, counter.entry_consumed, counter.counted_at)
  if counter.reserved > 0 then
    local hold_ends_at = counter.next_end > now and counter.next_end or now + 1000
    with_holds = math.min(with_holds, math.max(without_holds, hold_ends_at))
    slots = math.min(slots, math.max(now, hold_ends_at))
  end
  return math.max(with_holds, slots) - now
end

-- Moves the entry in memory.
local function move(counter, held, consumed)
  local entries = counter.entries
  counter.entry_held, counter.entry_consumed = counter.entry_held + held, counter.entry_consumed + consumed
  entries.newest = math.max(entries.newest, counter.counted_at)
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

-- Takes out the sums, a page of what slid out, and what the log has of the work, unless that stays as it was.
local function take_out(counter, entry)
  local log, entries = counter.log, counter.entries
  if entries.is_anew or (entries.admits and entries.live == 0) then
    redis.call('UNLINK', log)
    entries.count, entries.left_consumed, entries.left_held, entries.was = 0, 0, 0, false
  else
    if entries.was and entries.was ~= entry then
      redis.call('ZREM', log, entries.was)
      entries.count, entries.was = entries.count - 1, false
    end
    redis.call('ZREMRANGEBYRANK', log, '0', entries.gone)
    entries.count = entries.count - entries.gone
    if entries.count <= 0 then
      -- Whatever the sums had said: no entry is left without them.
      entries.count = redis.call('ZCARD', log)
    end
  end
  if entries.count == 0 then
    -- With the key, it was forgotten when that ends.
    entries.ends_at = 0
  elseif not entry and entries.newest == counter.counted_at then
    entries.newest = newest_of(counter)
  end
end

-- Adds an entry beside one of the same name and figures: of work whose record was forgotten and that came again, or of
-- a check in the same millisecond. Both count, and the older one has a number and its time in place of its id, so that
-- it is no other nameless one.
local function add_beside(counter, entry)
  local before, number = redis.call('ZSCORE', counter.log, entry), 0
  repeat
    local older = nameless(number, before) .. string.sub(entry, 33)
    number = number + 1
  until redis.call('ZADD', counter.log, 'NX', before, older) == 1
  redis.call('ZADD', counter.log, counter.counted_at, entry)
end

-- Writes the entry and the sums in place of those before. What a full log does not refuse is not counted.
function sliding_log.store(counter, by_redis_clock)
  if is_full(counter) then
    return
  end
  local log, entries = counter.log, counter.entries
  local entry = counter.entry_held + counter.entry_consumed > 0 and entry_of(counter)
  take_out(counter, entry)
  local is_added = entry and not entries.was
  entries.count = entries.count + (is_added and 1 or 0)
  if entries.count == 0 then
    return
  end
  local ends_at = by_redis_clock and hash_end(entries.newest + counter.length, entries.now) or 0
  local lives_longer = ends_at > entries.ends_at
  ends_at = math.max(ends_at, entries.ends_at)
  local sums = struct.pack('<i8i8i8i8i8i8i8', entries.epoch, counter.consumed + entries.left_consumed, counter.reserved + entries.left_held,
    counter.next_end, entries.newest, entries.count, ends_at)
  if not is_added then
    redis.call('ZADD', log, SUMS_AT, sums)
  elseif redis.call('ZADD', log, 'NX', SUMS_AT, sums, text_of(counter.counted_at), entry) < 2 then
    add_beside(counter, entry)
  end
  if lives_longer then
    redis.call('PEXPIREAT', log, integer(ends_at))
  end
end

sliding_log.need, sliding_log.held, sliding_log.most = cell.need, cell.held, sliding_log.room

return sliding_log
