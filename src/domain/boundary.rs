//! A boundary: an event of the outbox at which the writer cuts. What is before it in the outbox is before the instant.
//!
//! Layout (little-endian, no padding): `B layout(1)  B kind(8)  i8 gate_time_ms  c16 zeros  B flags(0)`.

use super::codec::{Reader, Undecodable};

/// The kind of a boundary's event.
pub const BOUNDARY_KIND: u8 = 8;

/// Whether an event is a boundary, without decoding more of it.
pub fn is_boundary(event: &[u8]) -> bool {
    event.get(1) == Some(&BOUNDARY_KIND)
}

/// Decodes a boundary. Returns when the gate appended it (gate time, unix ms).
pub fn decode_boundary(event: &[u8]) -> Result<i64, Undecodable> {
    let mut reader = Reader::new(event);
    if reader.u8()? != 1 || reader.u8()? != BOUNDARY_KIND {
        return Err(Undecodable("event layout"));
    }
    let gate_time_ms = reader.i64()?;
    let (_nobody, _flags): ([u8; 16], u8) = (reader.array()?, reader.u8()?);
    if reader.rest().is_empty() { Ok(gate_time_ms) } else { Err(Undecodable("more than a boundary")) }
}
