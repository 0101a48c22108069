#!lua
-- reserve_all: decides several reserves, one after the other, each all or nothing by itself: from the first on, as many
--              as the plain path decides.
-- KEYS     1 meta  2 outbox, then per reserve the keys of reserve from the reservation on
-- ARGV     1 epoch  2 not_after  3 now ('' = Redis's)  4 the number of keys of each, as bytes
--          then per reserve the arguments of reserve from the id on
-- returns  { status, real time, time, '', ... }
--          DONE: for each reserve that was decided, the answer of reserve    ALARM: epoch found
-- event    reserve or usage, with the whole record, for each that is admitted
-- include prelude
-- include plain/reserve

local real, now, facts, alarm = prelude(ARGV[3])
if alarm then
  return alarm
end
local answers, key = { DONE, real, now, '' }, 3
for number = 1, #ARGV[4] do
  -- A reserve that fails has only read. It must fail alone, for its own caller, so the answers before it are kept.
  local is_sound, plain = pcall(plain_reserve, real, now, facts, key, 2 + 3 * number)
  if not is_sound or not plain then
    break
  end
  answers[4 + number] = plain
  key = key + string.byte(ARGV[4], number)
end
return answers
