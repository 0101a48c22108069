-- Whether a line of an expired record accepts no late consume, or no longer. A call that was made before the expiry and
-- reached the gate after it does not count as late here.
local function late_rejected(record, now)
  for _, rule in ipairs(record.lines) do
    if (rule.rejects_late and now >= record.expires_at) or now > record.expires_at + rule.late_within * 1000 then
      return true
    end
  end
  return false
end
