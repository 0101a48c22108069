-- include cell
-- include square_root
-- anomaly: by how much sooner than usual a subject's calls come. The cell's mark is the last admitted call; consumed is
-- 1 where that was an anomaly. Its own numbers: how many intervals it has learned, the mean of the last ten or so, the
-- usual mean, both in thousandths of a millisecond, and the usual variance, in hundredths of a square millisecond.
-- Nothing is given back.
-- parameters  i8 samples before it judges  i8 thousandths of a deviation from which on a call is an anomaly  i8 from
--             which on it is refused, 0 for never
local anomaly = { is_restorable = false }
local MEMORY, PAUSE = 86400000, 3600000
local SHORT, LONG, SAMPLES_MAX = 10, 100, 1000
local DEVIATION_MIN, LONGER_MAX = 1000, 3

-- Reads a counter's parameters. Returns where they end.
function anomaly.read(counter, packed, at)
  counter.min_samples, counter.marks_from, counter.refuses_from, at = struct.unpack('<i8i8i8', packed, at)
  return at
end

-- Reads the cell as it counts new work. No other work moves it. A subject that has not called for long is a new one.
function anomaly.load(counter, raw, counted_at, admits, now)
  counter.began, counter.now, counter.mark, counter.counted_at, counter.samples = counted_at, now, now, counted_at, false
  if raw and admits then
    local mark, consumed, _, _, samples, short, mean, variance = struct.unpack('<i8i8i8i8i8i8i8i8', raw)
    if now < mark + MEMORY then
      counter.mark, counter.consumed, counter.current = mark, consumed, true
      counter.samples, counter.short, counter.mean, counter.variance = samples, short, mean, variance
    end
  end
end

-- Whether new work is an anomaly, whether it is refused, and its own numbers once it is admitted.
local function judge(counter)
  if not counter.samples then
    return false, false, 0, 0, 0, 0
  end
  local mean, variance = counter.mean, counter.variance
  local interval = math.min(math.max(counter.counted_at - counter.mark, 0), PAUSE) * 1000
  local samples, is_known = math.min(counter.samples + 1, SAMPLES_MAX), counter.samples >= counter.min_samples
  local deviation = math.max(100 * square_root(variance), math.floor(mean / 10), DEVIATION_MIN)
  if is_known then
    interval = math.min(interval, mean + LONGER_MAX * deviation)
  end
  local has_waited = interval >= mean
  local short = counter.short + math.floor((interval - counter.short) / math.min(samples, SHORT))
  local sooner = (mean - short) * 1000
  local is_anomaly = is_known and sooner >= counter.marks_from * deviation
  local is_refused = is_known and not has_waited and counter.refuses_from > 0 and sooner >= counter.refuses_from * deviation
  if not is_anomaly then
    local counted = is_known and math.max(interval, mean - deviation) or interval
    local gain, before = math.min(samples, LONG), counted - mean
    mean = mean + math.floor(before / gain)
    local square = math.floor(before / 100) * math.floor((counted - mean) / 100)
    variance = variance + math.floor((square - variance) / gain)
  end
  return is_anomaly, is_refused, samples, short, mean, variance
end

-- Whether it cuts a consume: it does not, because what a call uses counts nothing.
function anomaly.is_open()
  return false
end

-- Whether the call fits.
function anomaly.room(counter, capacity)
  local _, is_refused = judge(counter)
  return is_refused and cell.is_bounded(capacity) and 0 or capacity
end

-- When the subject is forgotten.
function anomaly.resets_at(counter)
  return counter.mark + MEMORY
end

-- How long the next call waits, in ms: as long as usual.
function anomaly.wait(counter)
  return counter.samples and math.ceil(counter.mean / 1000) or 0
end

-- What amounts need, and the least of them that would be granted: one call.
function anomaly.need(counter, amounts)
  local need = math.min(cell.need(counter, amounts), 1)
  return need, need
end

-- The most units that a call may be granted.
function anomaly.most(counter, capacity)
  return anomaly.room(counter, capacity) > 0 and 9e15 or 0
end

-- What an open reservation of these lines holds: it is one call.
function anomaly.held(counter, held, consumed)
  return math.min(cell.held(counter, held, consumed), 1)
end

-- Counts a call. By a clock that went back, calls come at once until it is where it was.
function anomaly.charge(counter, units)
  if units > 0 then
    local is_anomaly, _
    is_anomaly, _, counter.samples, counter.short, counter.mean, counter.variance = judge(counter)
    counter.mark = math.max(counter.mark, counter.counted_at)
    counter.consumed, counter.reserved, counter.next_end = is_anomaly and 1 or 0, 0, 0
  end
end

-- What became of a call changes nothing.
function anomaly.settle()
end

-- Packs the cell.
function anomaly.save(counter)
  return cell.save(counter) .. struct.pack('<i8i8i8i8', counter.samples or 0, counter.short or 0, counter.mean or 0, counter.variance or 0)
end

anomaly.hold, anomaly.give_back = anomaly.charge, anomaly.settle

return anomaly
