-- Packs what `read_taking` reads: the taking, with so many calls that go by it.
local function pack_taking(epoch, taking, claims)
  return struct.pack('<i8i8i8I4', epoch, taking.until_ms, taking.whole_until, claims) .. taking.rest
end
