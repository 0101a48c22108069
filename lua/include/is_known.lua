-- Whether a check's figures are those of its window.
local function is_known(check)
  return check.known and not check.later
end
