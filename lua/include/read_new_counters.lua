-- Reads the counters of one hash that were created inside their current window: `B whether a subject's hash of this
-- tenant has any`, then per counter `i8 restored at  I4 length` and
-- `c8 field  i8 window start  i8 window end  Bc0 meter  I2 operations` with `Bc0 id` for each, none for all. A budget's
-- has then `Bc0 meter  i8 factor` for each of its meters. What was open at that restore is in the counter. Returns the
-- counters, and the first byte.
local function read_new_counters(packed)
  local counters, length = {}, nil
  local has_subjects, at = struct.unpack('<B', packed)
  while at <= #packed do
    local counter = { operations = {} }
    local from = at
    counter.told_at, length, at = struct.unpack('<i8I4', packed, at)
    local meter, count, next
    counter.field, counter.window, counter.window_end, meter, count, next = struct.unpack('<c8i8i8Bc0I2', packed, at)
    for number = 1, count do
      counter.operations[number], next = struct.unpack('<Bc0', packed, next)
    end
    at = at + length
    counter.factors = { [meter] = 1 }
    while next < at do
      local factor
      meter, factor, next = struct.unpack('<Bc0i8', packed, next)
      counter.factors[meter] = factor
    end
    counter.packed = string.sub(packed, from, at - 1)
    counters[#counters + 1] = counter
  end
  return counters, has_subjects == 1
end
