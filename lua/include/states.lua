-- The states of a reservation in records.
local STATE_RESERVED, STATE_CONSUMED, STATE_RELEASED, STATE_EXPIRED = 1, 2, 3, 4
