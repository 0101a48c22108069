-- The states of a reservation, as records carry them.
local STATE_RESERVED, STATE_CONSUMED, STATE_RELEASED, STATE_EXPIRED = 1, 2, 3, 4
