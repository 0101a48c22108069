-- The kinds of event, as the outbox carries them.
local EVENT_RESERVE, EVENT_USAGE, EVENT_CONSUME, EVENT_RELEASE, EVENT_EXTEND, EVENT_EXPIRE, EVENT_CHECKPOINT = 1, 2, 3, 4, 5, 6, 7
