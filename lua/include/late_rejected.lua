-- Whether a line of an expired record takes no late consume, or no longer.
local function late_rejected(record, now)
  for _, rule in ipairs(record.lines) do
    if rule.rejects_late or now > record.expires_at + rule.late_within * 1000 then
      return true
    end
  end
  return false
end
