-- What a call was to a limit with a punishment: a violation, the one that has placed a ban, or a call under its ban.
local DEED_VIOLATION, DEED_LAST_VIOLATION, DEED_UNDER_BAN = 1, 2, 3
