#!lua flags=allow-oom
-- expire: sweeps the due buckets in order and returns what open holds have outlived. Each reservation is one transition:
--         read, check, write; an entry that is gone, resolved, extended or of another epoch is passed over.
-- KEYS     1 meta  2 outbox
-- ARGV     1 epoch  2 not_after  3 now ('' = Redis's)  4 due bucket ms  5 entries at most  6 empty buckets at most
--          7 keyed tombstone ms  8 unkeyed tombstone ms
-- returns  { status, real time, time, id of the last event or '', ... }
--          DONE: expired, skipped, missing, postponed, inconsistent, more ('1' or '0'), swept    ALARM: epoch found
-- event    expire, one a reservation
-- include statuses
-- include states
-- include kinds
-- include integer
-- include clock
-- include append
-- include sequence_of
-- include read_record
-- include read_body
-- include measure
-- include holder_keys
-- include cold_record
-- include pack_head
-- include pack_event
-- include write_counters
-- include store
-- include release_holds

local POSTPONE_MS = 5000

-- read
local meta, outbox = KEYS[1], KEYS[2]
local prefix = string.sub(meta, 1, -5)
local epoch, due_ms = tonumber(ARGV[1]), tonumber(ARGV[4])
local real, now = clock(ARGV[3])
local found = redis.call('HMGET', meta, 'epoch', 'swept', 'floor')
redis.call('XLEN', outbox)

-- check
if found[1] ~= ARGV[1] or not found[2] then
  return { ALARM, real, now, '', found[1] or '' }
end
if real > tonumber(ARGV[2]) then
  return { TOO_LATE, real, now, '' }
end
if now < tonumber(found[3] or 0) then
  return { TOO_EARLY, real, now, '' }
end

local swept, last_event = tonumber(found[2]), ''
local counts = { expired = 0, skipped = 0, missing = 0, postponed = 0, inconsistent = 0 }

-- One due entry: says what became of it.
local function expire(hex, bucket)
  -- read
  local reservation = prefix .. 'rsv:' .. hex
  local raw = redis.call('GET', reservation)
  if not raw then
    return 'missing'
  end
  local record = read_record(raw, epoch)
  if not record or record.state ~= STATE_RESERVED or math.ceil(record.expires_at / due_ms) > bucket then
    return 'skipped'
  end
  read_body(record)
  local holders = measure(holder_keys(prefix, record), record.counters, epoch, now)
  local later = prefix .. 'due:' .. integer(math.max(math.ceil((now + POSTPONE_MS) / due_ms), bucket + 1))
  redis.call('LLEN', later)
  -- check
  local is_cold = cold_record(holders) ~= nil
  if is_cold or not release_holds(record) then
    redis.call('RPUSH', later, hex)
    return is_cold and 'postponed' or 'inconsistent'
  end
  -- write
  record.state, record.step = STATE_EXPIRED, record.step + 1
  local id = string.gsub(hex, '%x%x', function(byte)
    return string.char(tonumber(byte, 16))
  end)
  last_event = append(outbox, ARGV[1], pack_event(EVENT_EXPIRE, now, id, 0, pack_head(record)))
  record.sequence = sequence_of(last_event)
  store(reservation, record, ARGV[7], ARGV[8])
  write_counters(holders, record.counters)
  return 'expired'
end

local entries_left, buckets_left = tonumber(ARGV[5]), tonumber(ARGV[6])
while entries_left > 0 and buckets_left > 0 and (swept + 1) * due_ms <= now do
  local bucket = swept + 1
  local due = prefix .. 'due:' .. integer(bucket)
  local entries = redis.call('LRANGE', due, 0, entries_left - 1)
  for _, hex in ipairs(entries) do
    local became = expire(hex, bucket)
    counts[became] = counts[became] + 1
  end
  if #entries == 0 then
    buckets_left = buckets_left - 1
    swept = bucket
  else
    redis.call('LTRIM', due, #entries, -1)
    entries_left = entries_left - #entries
  end
end
redis.call('HSET', meta, 'swept', integer(swept))
local more = (swept + 1) * due_ms <= now
return { DONE, real, now, last_event, counts.expired, counts.skipped, counts.missing, counts.postponed,
  counts.inconsistent, more and '1' or '0', integer(swept) }
