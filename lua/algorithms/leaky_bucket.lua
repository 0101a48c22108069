-- include cell
-- include drain
-- include drain_wait
-- leaky_bucket: by a queue that drains steadily. The cell's mark is the last touch; consumed is the level, which is
-- what was put in and has not drained yet; reserved are the open holds, which are shown and not added. Its own numbers:
-- the first work in it, and the fraction of a unit that has drained. Nothing comes back: a slot that is given up passes
-- unused.
-- parameters  i8 drain  i8 per so many ms  i8 longest wait in ms
local leaky_bucket = { is_restorable = false }

-- Reads a counter's parameters. Returns where they end.
function leaky_bucket.read(counter, packed, at)
  counter.drain, counter.per_ms, counter.longest_wait, at = struct.unpack('<i8i8i8', packed, at)
  return at
end

-- Reads the cell as it counts work of one instant, drained up to now. What was made before the first work in it, it has
-- forgotten. New work at a clock that went back finds it as it was, unless it lies further back than the level takes to
-- drain.
function leaky_bucket.load(counter, raw, counted_at, admits, now)
  counter.began, counter.mark, counter.since, counter.fraction = counted_at, counted_at, counted_at, 0
  counter.admits, counter.now = admits, now
  if not raw then
    return
  end
  local mark, level, reserved, next_end, since, fraction = struct.unpack('<i8i8i8i8i8i8', raw)
  local units, per_ms = counter.drain, counter.per_ms
  if admits and now < mark - drain_wait(level, fraction, units, per_ms) then
    return
  end
  counter.mark, counter.since = math.max(mark, now), admits and math.min(since, counted_at) or since
  counter.reserved, counter.next_end = reserved, next_end
  counter.consumed, counter.fraction = drain(level, fraction, units, per_ms, counter.mark - mark)
  counter.current = counted_at >= counter.since
end

-- How long so much takes to drain, from now on.
local function drained_after(counter, units)
  return counter.mark - counter.now + drain_wait(units, counter.fraction, counter.drain, counter.per_ms)
end

-- Whether it counts what was made then.
function leaky_bucket.is_open(counter)
  return counter.current
end

-- How long work that is put in now has to wait for what stands before it.
function leaky_bucket.delay(counter)
  return counter.consumed > 0 and drained_after(counter, counter.consumed) or 0
end

-- How many more units fit: none for new work that would have to wait for too long.
function leaky_bucket.room(counter, capacity)
  local left = capacity - counter.consumed
  if counter.admits and cell.is_bounded(capacity) and leaky_bucket.delay(counter) > counter.longest_wait then
    return math.min(left, 0)
  end
  return left
end

-- When it is empty.
function leaky_bucket.resets_at(counter)
  return counter.now + leaky_bucket.delay(counter)
end

-- How long until so many units fit, in ms; -1 for never.
function leaky_bucket.wait(counter, need)
  if need > counter.capacity then
    return -1
  end
  local lacking = need - counter.capacity + counter.consumed
  local fits_after = lacking > 0 and drained_after(counter, lacking) or 0
  return math.max(fits_after, leaky_bucket.delay(counter) - counter.longest_wait)
end

-- Holds units until then.
function leaky_bucket.hold(counter, units, ends_at)
  counter.consumed = counter.consumed + units
  cell.hold(counter, units, ends_at)
end

-- Packs the cell.
function leaky_bucket.save(counter)
  return cell.save(counter) .. struct.pack('<i8i8', counter.since, counter.fraction)
end

leaky_bucket.charge, leaky_bucket.settle, leaky_bucket.give_back = cell.charge, cell.give_back, cell.give_back
leaky_bucket.need, leaky_bucket.held, leaky_bucket.most = cell.need, cell.held, leaky_bucket.room

return leaky_bucket
