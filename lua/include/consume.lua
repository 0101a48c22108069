-- The transition consume, also behind a release that names what was incurred. `call`: real, now, epoch, totals,
-- is_final, otherwise; `kind` and `final_state` for a release.
local function consume(record, call)
  local real, now = call.real, call.now
  local totals, wrong, detail = read_totals(record, call.totals, call.otherwise)

  -- replay: the state table of API.md
  if record.state == 2 or record.state == 3 then
    local same = record.state == 2 and totals ~= nil and not call.kind
    for line = 1, record.count do
      local capped = record.lines[line].excess == 1 and record.consumed[line] >= record.held[line]
      same = same and (totals[line] == record.consumed[line] or (capped and totals[line] > record.consumed[line]))
    end
    return { same and REPLAYED or ALREADY_RESOLVED, real, now, record.packed, '' }
  end
  local late = record.state == 4
  local seen = read_moved(record, ARGV[5], call.epoch, now)
  if not late and not call.is_final and totals then
    local same = true
    for line = 1, record.count do
      same = same and totals[line] == record.consumed[line]
    end
    if same and not seen.cold then
      return { REPLAYED, real, now, record.packed, pack_readings(record.places) }
    end
  end

  -- check
  if real > tonumber(ARGV[2]) then
    return { TOO_LATE, real, now }
  end
  if seen.cold or #seen.cold_counters > 0 then
    return {
      COLD, real, now, last_id(KEYS[2]), seen.tenant_cold, table.concat(seen.cold_holders),
      table.concat(seen.cold_counters), record.packed,
    }
  end
  if late then
    for line = 1, record.count do
      local rule = record.lines[line]
      if rule.late_rejects or now > record.expires + rule.late_within * 1000 then
        return { EXPIRED, real, now, record.packed, pack_readings(record.places) }
      end
    end
  end
  if not totals then
    return { wrong, real, now, detail, record.packed }
  end
  local before = pack_amounts(record.consumed, record.count)
  local uncharged, capped = {}, false
  for line = 1, record.count do
    uncharged[line] = 0
    if totals[line] < record.consumed[line] then
      return { AMOUNT_DECREASED, real, now, line - 1, record.packed }
    end
    if totals[line] > record.held[line] and record.lines[line].excess == 2 then
      return { EXCESS_REJECTED, real, now, line - 1, record.packed }
    end
    if totals[line] > record.held[line] and record.lines[line].excess == 1 then
      local most = totals[line]
      -- What is still held stands in the counter already; what an expired hold gave back must fit again.
      local own = late and record.consumed[line] or math.max(record.held[line], record.consumed[line])
      for _, place in ipairs(record.places) do
        for _, pair in ipairs(place) do
          if pair.line == line and place.limit and place.current and now < place.finish then
            local room = math.max(0, place.limit - place.consumed - place.reserved)
            most = math.min(most, math.max(own + math.floor(room / pair.weight), record.held[line]))
          end
        end
      end
      uncharged[line] = totals[line] - most
      capped = capped or uncharged[line] > 0
      totals[line] = most
    end
  end
  local resolved = late or call.is_final
  local state = resolved and (call.final_state or 2) or 1
  for _, place in ipairs(record.places) do
    for _, pair in ipairs(place) do
      if place.consumed + (totals[pair.line] - record.consumed[pair.line]) * pair.weight > 9e15 then
        return { TOO_LARGE, real, now, pair.line - 1, record.packed }
      end
    end
  end
  if not plan_moves(record, state, totals, record.expires) then
    return redis.error_reply('INCONSISTENT a counter holds less than its reservation does')
  end
  local keyed = struct.unpack('<B', record.packed, record.tail + 1) == 1
  record.consumed, record.state, record.step = totals, state, record.step + 1
  record.late = late and 1 or record.late
  local flags = (resolved and 1 or 0) + (capped and 2 or 0)
  local extra = capped and pack_amounts(uncharged, record.count) or ''

  -- write
  local kind = call.kind or 3
  if kind == 4 then
    flags, extra = 0, ''
  end
  local sequence = append(KEYS[2], call.epoch, kind, now, ARGV[6], flags, pack_head(record, 0) .. extra)
  local head = pack_head(record, sequence)
  local whole = head .. string.sub(record.packed, record.body)
  if resolved then
    redis.call('SET', KEYS[3], head .. string.sub(record.packed, record.body, record.core_end), 'PX',
      keyed and ARGV[7] or ARGV[8])
  else
    redis.call('SET', KEYS[3], whole)
  end
  write_moves(record)
  return { DONE, real, now, whole, pack_readings(record.places), sequence, before, extra }
end
