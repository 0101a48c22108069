#!lua flags=allow-oom
-- expire_held: gives back the units of light holds that are over, the first to end first. Each is one transition: read,
--              check, write. One that is gone, resolved or extended leaves the list; one of another epoch goes whole.
--              One that cannot be decoded, or whose counters cannot, is reported and retried later.
-- KEYS     1 meta  2 light holds by when they end
-- ARGV     1 epoch  2 not_after  3 now ('' = Redis's)  4 entries at most  5 keyed tombstone ms  6 unkeyed tombstone ms
-- returns  { status, real time, time, '', ... }
--          DONE: expired, skipped, missing, more ('1' or '0'), damaged, then for the first of these what is damaged and
--          why    ALARM: epoch found
-- event    none
-- include prelude
-- include out_of_time
-- include states
-- include integer
-- include keys/prefix
-- include keys/reservation
-- include read_record
-- include read_body
-- include measure_held
-- include release_holds
-- include store_held
-- include write_held

local RETRY_MS, NOTES_MAX = 60000, 20

local real, now, facts, alarm = prelude(ARGV[3])
if alarm then
  return alarm
end

-- read
local holds, epoch, prefix = KEYS[2], tonumber(ARGV[1]), key_prefix()
local entries = redis.call('ZRANGEBYSCORE', holds, '-inf', integer(now), 'LIMIT', 0, ARGV[4])

-- check
local refused = out_of_time(real, now, facts[3])
if refused then
  return refused
end
local counts, notes = { expired = 0, skipped = 0, lost = 0, missing = 0, damaged = 0 }, {}

-- Reads one hold that is over. Returns what happens to it and, for a record, that with its holds taken off in memory,
-- and the hashes of its counters.
local function look(key, hex)
  local raw = redis.call('GET', key)
  if not raw then
    return 'missing'
  end
  local record = read_record(raw, epoch)
  if not record then
    return 'lost'
  end
  if record.state ~= STATE_RESERVED or record.expires_at > now then
    return 'skipped'
  end
  read_body(record)
  record.hex = hex
  local hashes = measure_held(prefix, record, epoch, now)
  release_holds(record)
  return 'expired', record, hashes
end

-- write
for _, hex in ipairs(entries) do
  local key = reservation_key(prefix, hex)
  local is_whole, became, record, hashes = pcall(look, key, hex)
  if not is_whole then
    if #notes < NOTES_MAX then
      notes[#notes + 1] = hex .. ' ' .. (type(became) == 'table' and became.err or tostring(became))
    end
    became = 'damaged'
    redis.call('ZADD', holds, integer(now + RETRY_MS), hex)
  elseif became == 'expired' then
    record.state, record.step = STATE_EXPIRED, record.step + 1
    store_held(key, holds, record, ARGV[5], ARGV[6])
    write_held(hashes, record, now, ARGV[3] == '')
  else
    redis.call('ZREM', holds, hex)
    if became == 'lost' then
      redis.call('DEL', key)
    end
  end
  counts[became] = counts[became] + 1
end
local more = #entries >= tonumber(ARGV[4]) and '1' or '0'
local skipped = counts.skipped + counts.lost
return { DONE, real, now, '', counts.expired, skipped, counts.missing, more, counts.damaged, unpack(notes) }
