-- When a fixed window ends whose first use is at `mark`. It begins there or, if aligned, at the multiple of its length
-- before it.
local function fixed_end(mark, length, aligned)
  return (aligned == 1 and mark - mark % length or mark) + length
end
