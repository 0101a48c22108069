-- From here on a scope is that of light counters, which a booked call names beside those of the state hashes: this much
-- more than the scope of the state hash beside which they stand.
local LIGHT_SCOPE = 128
