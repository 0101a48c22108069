-- include statuses
-- include last_id
-- The answer that the ledger must restore something first: cold hashes, or these counters of the record, as bytes.
local function about_cold(call, counters)
  local cold = call.cold or { tenant = 0, holders = '' }
  return { COLD, call.real, call.now, last_id(KEYS[2]), call.record.raw, cold.tenant, cold.holders, counters }
end
