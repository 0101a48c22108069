//! What limits with a punishment are sent, and what they remember of whom they count.

use crate::domain::codec::{Reader, Undecodable, Write};
use crate::domain::limit::Limit;
use crate::domain::on_gate_failure::OnGateFailure;
use crate::domain::punishment::{Conduct, Deed, Punishment};

use super::bans::name_in_bans;
use super::call::Reply;
use super::reserve::{CounterReading, readings_in_shadow};

/// Layout: `i8 memory  i8 ban at (0: never)  i8 first ban  i8 factor in thousandths  i8 longest ban  B` whether
/// instances have shares of the counter, `Bc0` what the limit is called in its bans; lengths in ms.
pub(super) fn pack_punishment(limit: &Limit, punishment: &Punishment, out: &mut Vec<u8>) {
    let of_ban = punishment.ban.map_or([0, 0, 1_000, 0], |ban| {
        [ban.at.get(), ban.first.ms(), ban.factor.thousandths(), ban.longest.ms()]
    });
    out.put_8(punishment.memory.ms());
    for number in of_ban {
        out.put_8(number);
    }
    out.put_byte(u8::from(limit.on_gate_failure == OnGateFailure::Local));
    out.put_text(&name_in_bans(limit));
}

/// Reads the counters at one value of the answer; others say which of them did not count the call, and what limits
/// remember: `B counter  B deed  i8 violations  i8 bans  i8 banned until` for each.
pub(super) fn readings_with_conduct(
    reply: &Reply,
    at: usize,
    shadows_at: usize,
    conduct_at: usize,
) -> Result<Vec<CounterReading>, Undecodable> {
    with_conduct(readings_in_shadow(reply, at, shadows_at)?, reply.bytes(conduct_at)?)
}

/// The same readings with what limits remember, as it is packed.
pub(super) fn with_conduct(
    mut readings: Vec<CounterReading>,
    packed: &[u8],
) -> Result<Vec<CounterReading>, Undecodable> {
    let mut reader = Reader::new(packed);
    while !reader.rest().is_empty() {
        let number = usize::from(reader.u8()?);
        let reading = readings.get_mut(number).ok_or(Undecodable("a counter's number"))?;
        reading.conduct = Conduct {
            deed: Deed::from_code(reader.u8()?).ok_or(Undecodable("what a call was"))?,
            violations: reader.i64()?,
            bans: reader.i64()?,
            banned_until_ms: reader.i64()?,
        };
    }
    Ok(readings)
}
