-- The room of a counter whose capacity is not known.
local UNKNOWN_ROOM = -9007199254740992
