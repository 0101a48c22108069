-- How long the next ban of a punishment lasts, in ms, as domain/punishment.rs says it too.
local function ban_length(punishment)
  local length, left, factor = punishment.first, punishment.bans, punishment.factor
  while left > 0 and factor > 1000 and length < punishment.longest do
    local product = length * factor
    length, left = (product - product % 1000) / 1000, left - 1
  end
  return math.min(length, punishment.longest)
end
