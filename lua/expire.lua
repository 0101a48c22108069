#!lua flags=allow-oom
-- Expires what is due: one bounded walk over the due buckets, each reservation a transition of its own.
--
-- KEYS  1 meta  2 outbox
-- ARGV  1 epoch  2 not_after (real ms)  3 now (test clock, ms, or empty)  4 prefix of due buckets  5 prefix of reservations
--       6 prefix of states  7 width of a due bucket (ms)  8 reservations at most  9 tombstone life, keyed (ms)
--       10 tombstone life, unkeyed (ms)  11 how long a hold of a cold tenant is put off (ms)
-- Returns {status, real time, now, …}: ALARM {epoch found} · DONE {expired, skipped, missing, postponed, inconsistent, more, swept}
-- Event expire (6), one for each
-- include status
-- include clock
-- include record
-- include counters
-- include outbox
-- include resolve
-- include due
local BUCKETS_MAX = 1000

local real, now = clock(ARGV[3])
local meta = redis.call('HMGET', KEYS[1], 'epoch', 'swept')
if meta[1] ~= ARGV[1] then
  return { ALARM, real, now, meta[1] or '' }
end
if real > tonumber(ARGV[2]) then
  return { TOO_LATE, real, now }
end
local epoch, swept, bucket_ms = tonumber(ARGV[1]), tonumber(meta[2]), tonumber(ARGV[7])
local last = math.floor(now / bucket_ms)
local done = { expired = 0, skipped = 0, missing = 0, postponed = 0, inconsistent = 0 }

-- The id's sixteen bytes, as events carry them.
local function id_bytes(hex)
  return (string.gsub(hex, '..', function(pair)
    return string.char(tonumber(pair, 16))
  end))
end

local function put_off(hex)
  local due = due_bucket(ARGV[4], bucket_ms, now + tonumber(ARGV[11]), last)
  redis.call('RPUSH', due, hex)
end

-- One due entry; the list has let go of it already.
local function expire(hex)
  local key = ARGV[5] .. hex
  local packed = redis.call('GET', key)
  if not packed then
    return 'missing'
  end
  local record = read_record(packed)
  if record.epoch ~= epoch or record.state ~= 1 or record.expires > now then
    return 'skipped'
  end
  read_core(record)
  local seen = read_moved(record, ARGV[6], epoch, now)
  if seen.cold then
    put_off(hex)
    return 'postponed'
  end
  if not plan_moves(record, 4, record.consumed, 0) then
    put_off(hex)
    return 'inconsistent'
  end
  local keyed = struct.unpack('<B', record.packed, record.tail + 1) == 1
  record.state, record.step = 4, record.step + 1
  local sequence = append(KEYS[2], epoch, 6, now, id_bytes(hex), 0, pack_head(record, 0))
  local whole = pack_head(record, sequence) .. string.sub(record.packed, record.body)
  redis.call('SET', key, whole, 'PX', keyed and ARGV[9] or ARGV[10])
  write_moves(record)
  return 'expired'
end

local budget, buckets = tonumber(ARGV[8]), 0
while swept < last and budget > 0 and buckets < BUCKETS_MAX do
  local due = ARGV[4] .. string.format('%.0f', swept + 1)
  local entries = redis.call('LPOP', due, budget)
  if entries then
    for _, hex in ipairs(entries) do
      local outcome = expire(hex)
      done[outcome] = done[outcome] + 1
    end
    budget = budget - #entries
  end
  if redis.call('EXISTS', due) == 0 then
    swept, buckets = swept + 1, buckets + 1
  end
end
redis.call('HSET', KEYS[1], 'swept', string.format('%.0f', swept))
return {
  DONE, real, now, done.expired, done.skipped, done.missing, done.postponed, done.inconsistent,
  swept < last and 1 or 0, swept,
}
