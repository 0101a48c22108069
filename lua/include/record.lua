-- Reads a packed record (layout: src/domain/reservation.rs): its head, the lines' figures, and where its body begins.
local function read_record(packed)
  local _, state, count, flags, step, epoch, expires, born, latest, sequence, at =
    struct.unpack('<BBBBI4i8i8i8i8i8', packed)
  local held, consumed = {}, {}
  for line = 1, count do
    held[line], consumed[line], at = struct.unpack('<i8i8', packed, at)
  end
  return {
    state = state, count = count, late = flags, step = step, epoch = epoch, expires = expires, born = born,
    latest = latest, sequence = sequence, held = held, consumed = consumed, body = at, packed = packed,
  }
end

-- Reads the core of a record's body into it: tenant, and per line meter, decimals, rules and late_within_seconds.
local function read_core(record)
  local packed, at = record.packed, record.body
  local core_length = struct.unpack('<I2', packed, at + 16)
  record.core_end = at + core_length - 1
  record.tenant, at = struct.unpack('<Bc0', packed, at + 18)
  record.lines = {}
  for line = 1, record.count do
    local meter, decimals, rules, late_within
    meter, decimals, rules, late_within, at = struct.unpack('<Bc0BBI4', packed, at)
    record.lines[line] = {
      meter = meter, decimals = decimals, excess = rules % 4, late_rejects = rules >= 4, late_within = late_within,
    }
  end
  record.rest = at
end

-- Reads which counters a record moved: subject hashes, and per counter holder, field, window and (line, weight) pairs.
local function read_places(record)
  local packed = record.packed
  local subject_count, at = struct.unpack('<B', packed, record.rest)
  record.subjects = {}
  for subject = 1, subject_count do
    record.subjects[subject], at = struct.unpack('<c13', packed, at)
  end
  local place_count
  place_count, at = struct.unpack('<B', packed, at)
  record.places = {}
  for index = 1, place_count do
    local place = {}
    local shape
    place.holder, place.field, place.start, shape, at = struct.unpack('<Bc8i8B', packed, at)
    if shape >= 32 then
      place.finish, place.capacity, at = struct.unpack('<i8i8', packed, at)
      shape = shape - 32
    end
    local weighted = shape >= 16
    local pair_count = weighted and shape - 16 or shape
    for pair = 1, pair_count do
      local line
      local weight = 1
      line, at = struct.unpack('<B', packed, at)
      if weighted then
        weight, at = struct.unpack('<i8', packed, at)
      end
      place[pair] = { line = line + 1, weight = weight }
    end
    record.places[index] = place
  end
  record.tail = at
end

-- Packs head and lines; the body follows it unchanged.
local function pack_head(record, sequence)
  local parts = {
    struct.pack('<BBBBI4i8i8i8i8i8', 1, record.state, record.count, record.late, record.step, record.epoch,
      record.expires, record.born, record.latest, sequence),
  }
  for line = 1, record.count do
    parts[line + 1] = struct.pack('<i8i8', record.held[line], record.consumed[line])
  end
  return table.concat(parts)
end
