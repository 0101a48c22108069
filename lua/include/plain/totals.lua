-- Reads a final consume's totals against an open record, whose lines begin at the 49th byte. Returns, by line, what is
-- no longer held and what is consumed in addition; the record's new lines, packed; and where the rules of the lines
-- end. Returns nothing where a total cannot be read, is rejected or may be cut.
local function plain_totals(raw, line_count, at)
  local unpack_from, totals, total_at = struct.unpack, ARGV[6], 2
  local named, freed, used, lines = string.byte(totals), { 0 }, { 0 }, ''
  if named > 0 and named ~= line_count then
    return nil
  end
  for line = 1, line_count do
    local held, consumed = unpack_from('<i8i8', raw, 33 + 16 * line)
    local meter, decimals, rules
    meter, decimals, rules, at = unpack_from('<Bc0BBxxxx', raw, at)
    local most = held > consumed and held or consumed
    local total = most
    if named > 0 then
      local of, mantissa, scale
      of, mantissa, scale, total_at = unpack_from('<Bc0i8B', totals, total_at)
      if (of ~= meter and (of ~= '' or line_count > 1)) or scale > decimals then
        return nil
      end
      total = mantissa * 10 ^ (decimals - scale)
    end
    local caps, rejects = rules % 4 == 1, rules % 4 == 2
    if caps or (rejects and total > most) or total < consumed or total > 9e15 then
      return nil
    end
    freed[line], used[line] = most - consumed, total - consumed
    lines = lines .. struct.pack('<i8i8', held, total)
  end
  return freed, used, lines, at
end
