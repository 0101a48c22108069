#!lua flags=allow-oom
-- expire: sweeps the due buckets in order and gives back the units of expired holds. Each reservation is one
--         transition: read, check, write. An entry that is gone, resolved, extended or of another epoch is skipped; a
--         record of another epoch gets an end.
--         One that cannot be decoded, or whose counters cannot, is reported and retried later; so is a due list of the
--         wrong type. When it lags too far to go bucket by bucket, it leaps: every bucket up to now counts as finished,
--         so that nothing new is added to one. The field `behind` of meta then stays until a caller has found and swept
--         the lists left out.
-- KEYS     1 meta  2 outbox  3.. due lists that a leap left out; with these it sweeps no others
-- ARGV     1 epoch  2 not_after  3 now ('' = Redis's)  4 due bucket ms  5 entries at most  6 empty buckets at most
--          7 keyed tombstone ms  8 unkeyed tombstone ms  9 the leap whose lists are all swept ('' = none)
-- returns  { status, real time, time, id of the last event or '', ... }
--          DONE: expired, skipped, missing, postponed, inconsistent, more ('1' or '0'), swept, the leap with lists left
--          out or '', damaged, then for the first of these what is damaged and why
--          ALARM: epoch found
-- event    expire, one for each reservation
-- include prelude
-- include out_of_time
-- include states
-- include kinds
-- include integer
-- include keys/prefix
-- include keys/due
-- include keys/reservation
-- include append
-- include sequence_of
-- include read_record
-- include read_body
-- include measure_record
-- include cold_record
-- include record_values
-- include pack_event
-- include write_counters
-- include store
-- include release_holds

local POSTPONE_MS, RETRY_MS = 5000, 60000
local NOTES_MAX = 20

-- read
local meta, outbox, prefix = KEYS[1], KEYS[2], key_prefix()
local epoch, due_ms = tonumber(ARGV[1]), tonumber(ARGV[4])
local real, now, facts, alarm = prelude(ARGV[3], 'behind')
if alarm then
  return alarm
end
redis.call('XLEN', outbox)

-- check
local refused = out_of_time(real, now, facts[3])
if refused then
  return refused
end

local swept, behind, last_event = tonumber(facts[2]), facts[4] or '', ''
local counts = { expired = 0, skipped = 0, missing = 0, postponed = 0, inconsistent = 0, damaged = 0 }
local notes = {}

local function note_damage(what, why)
  if #notes < NOTES_MAX then
    notes[#notes + 1] = what .. ' ' .. (type(why) == 'table' and why.err or tostring(why))
  end
end

-- The list in which an entry of this bucket is due again.
local function later(bucket, after_ms)
  return due_key(prefix, math.max(math.ceil((now + after_ms) / due_ms), bucket + 1))
end

-- Reads one due entry. Returns what happens to it and, for a record, that with its holds taken off in memory, and its
-- state hashes.
local function look(reservation, bucket)
  redis.call('LLEN', later(bucket, POSTPONE_MS))
  local raw = redis.call('GET', reservation)
  if not raw then
    return 'missing'
  end
  local record = read_record(raw, epoch)
  if not record then
    return 'lost'
  end
  if record.state ~= STATE_RESERVED or math.ceil(record.expires_at / due_ms) > bucket then
    return 'skipped'
  end
  read_body(record)
  record.hex = string.sub(reservation, -32)
  local holders = measure_record(prefix, record, epoch, now)
  if cold_record(holders, record) then
    return 'postponed'
  end
  return release_holds(record) and 'expired' or 'inconsistent', record, holders
end

-- Expires one due entry; returns what happened to it.
local function expire(hex, bucket)
  -- read
  local reservation = reservation_key(prefix, hex)
  local is_whole, became, record, holders = pcall(look, reservation, bucket)
  -- check
  if not is_whole then
    note_damage(hex, became)
    redis.pcall('RPUSH', later(bucket, RETRY_MS), hex)
    return 'damaged'
  end
  if became == 'lost' then
    -- No script of this epoch reads it, and a restore writes what is open again, without an end.
    redis.call('PEXPIRE', reservation, ARGV[7], 'NX')
    return 'skipped'
  end
  if became == 'postponed' or became == 'inconsistent' then
    redis.call('RPUSH', later(bucket, POSTPONE_MS), hex)
  end
  if became ~= 'expired' then
    return became
  end
  -- write
  record.state, record.step = STATE_EXPIRED, record.step + 1
  local id = string.gsub(hex, '%x%x', function(byte)
    return string.char(tonumber(byte, 16))
  end)
  local values, format = record_values(record)
  last_event = append(outbox, ARGV[1], pack_event(EVENT_EXPIRE, now, id, 0, values, format, ''))
  record.sequence = sequence_of(last_event, ARGV[1])
  store(reservation, record, values, format, ARGV[7], ARGV[8])
  write_counters(holders, record.counters, ARGV[3] == '')
  return 'expired'
end

local entries_left, buckets_left = tonumber(ARGV[5]), tonumber(ARGV[6])

-- The first entries of one due list; false when it has none.
local function sweep(due, bucket)
  local entries = redis.pcall('LRANGE', due, 0, entries_left - 1)
  if entries.err then
    counts.damaged = counts.damaged + 1
    note_damage(string.match(due, 'due:%d+$'), entries)
    return false
  end
  for _, hex in ipairs(entries) do
    local became = expire(hex, bucket)
    counts[became] = counts[became] + 1
  end
  if #entries > 0 then
    redis.call('LTRIM', due, #entries, -1)
    entries_left = entries_left - #entries
  end
  return #entries > 0
end

local more
if #KEYS > 2 then
  for number = 3, #KEYS do
    local bucket = tonumber(string.match(KEYS[number], '%d+$'))
    if entries_left > 0 and bucket <= swept then
      sweep(KEYS[number], bucket)
    end
  end
  more = entries_left == 0
else
  local last = math.floor(now / due_ms)
  if last - swept > buckets_left then
    swept, behind = last, integer(last)
  end
  while entries_left > 0 and buckets_left > 0 and swept < last do
    if not sweep(due_key(prefix, swept + 1), swept + 1) then
      buckets_left = buckets_left - 1
      swept = swept + 1
    end
  end
  more = swept < last
end
if behind ~= '' and behind == ARGV[9] then
  redis.call('HDEL', meta, 'behind')
  behind = ''
end
redis.call('HSET', meta, 'swept', integer(swept))
if behind ~= '' then
  redis.call('HSET', meta, 'behind', behind)
end
return { DONE, real, now, last_event, counts.expired, counts.skipped, counts.missing, counts.postponed,
  counts.inconsistent, more and '1' or '0', integer(swept), behind, counts.damaged, unpack(notes) }
