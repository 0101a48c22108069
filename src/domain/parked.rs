//! A call that was taken while the gate was away, as the ledger stores it until the gate has it: bytes that a later
//! policy cannot change.
//!
//! Layout (little-endian, no padding): `B layout(1)  B kind`, then for an admission (1) `B counters  per counter: i8
//! window_end_ms  i8 since_ms  B starts_fresh` and the whole record; for a consume (2) `B final` and totals; for a
//! release (3) totals.
//! Totals: `B sort (0 none, 1 the single line's, 2 by meter)  B count  per total: Bc0 meter  Bc0 amount`.

use super::amount::Amount;
use super::codec::{Reader, Undecodable, Write};
use super::ids::MeterId;
use super::reservation::{Record, ReservationState};
use super::resolution::Totals;

const LAYOUT: u8 = 1;

/// The lifetime of a counter: the end of its window, and since when it counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CounterLife {
    /// The end of its window (unix ms).
    pub window_end_ms: i64,
    /// When it was created (unix ms).
    pub since_ms: i64,
    /// Whether it may start at zero when the gate does not have it.
    pub starts_fresh: bool,
}

/// The parked call.
#[allow(clippy::large_enum_variant, reason = "made once a call and taken apart at once")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ParkedCall {
    /// A reserve (its record is reserved) or a usage (its record is consumed).
    Admit {
        /// The record that was answered, with epoch 0.
        record: Record,
        /// The lifetime of each counter of the record, in order.
        lives: Vec<CounterLife>,
    },
    /// A consume.
    Consume {
        /// The totals as they were judged, with every line named.
        totals: Totals,
        /// Whether it resolves the reservation.
        is_final: bool,
    },
    /// A release.
    Release {
        /// The totals used, as the call named them.
        incurred: Totals,
    },
}

impl ParkedCall {
    /// The call's name in the API.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Admit { record, .. } if record.head.state == ReservationState::Consumed => "usage",
            Self::Admit { .. } => "reserve",
            Self::Consume { .. } => "consume",
            Self::Release { .. } => "release",
        }
    }

    /// Packs the call.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![LAYOUT];
        match self {
            Self::Admit { record, lives } => {
                out.put_byte(1);
                out.put_byte(u8::try_from(lives.len()).unwrap_or(u8::MAX));
                for life in lives {
                    out.put_8(life.window_end_ms);
                    out.put_8(life.since_ms);
                    out.put_byte(u8::from(life.starts_fresh));
                }
                out.extend_from_slice(&record.encode());
            }
            Self::Consume { totals, is_final } => {
                out.put_byte(2);
                out.put_byte(u8::from(*is_final));
                encode_totals(totals, &mut out);
            }
            Self::Release { incurred } => {
                out.put_byte(3);
                encode_totals(incurred, &mut out);
            }
        }
        out
    }

    /// Reads a packed call.
    pub fn decode(bytes: &[u8]) -> Result<Self, Undecodable> {
        let mut reader = Reader::new(bytes);
        if reader.u8()? != LAYOUT {
            return Err(Undecodable("layout of a parked call"));
        }
        match reader.u8()? {
            1 => decode_admission(&mut reader),
            2 => {
                let is_final = reader.u8()? == 1;
                Ok(Self::Consume { totals: decode_totals(&mut reader)?, is_final })
            }
            3 => Ok(Self::Release { incurred: decode_totals(&mut reader)? }),
            _ => Err(Undecodable("unknown kind of parked call")),
        }
    }
}

fn decode_admission(reader: &mut Reader<'_>) -> Result<ParkedCall, Undecodable> {
    let count = reader.u8()?;
    let life = |reader: &mut Reader<'_>| {
        Ok(CounterLife {
            window_end_ms: reader.i64()?,
            since_ms: reader.i64()?,
            starts_fresh: reader.u8()? == 1,
        })
    };
    let lives: Vec<_> = (0..count).map(|_| life(reader)).collect::<Result<_, Undecodable>>()?;
    let record = Record::decode(reader.rest())?;
    let counters = record.body.rest.as_ref().map(|rest| rest.counters.len());
    if counters != Some(lives.len()) {
        return Err(Undecodable("counters of a parked call"));
    }
    Ok(ParkedCall::Admit { record, lives })
}

fn encode_totals(totals: &Totals, out: &mut Vec<u8>) {
    let (sort, named): (u8, Vec<(&str, Amount)>) = match totals {
        Totals::Default => (0, Vec::new()),
        Totals::Single(amount) => (1, vec![("", *amount)]),
        Totals::ByMeter(named) => {
            (2, named.iter().map(|(meter, amount)| (meter.as_str(), *amount)).collect())
        }
    };
    out.put_byte(sort);
    out.put_byte(u8::try_from(named.len()).unwrap_or(u8::MAX));
    for (meter, amount) in named {
        out.put_text(meter);
        out.put_text(&amount.to_string());
    }
}

fn decode_totals(reader: &mut Reader<'_>) -> Result<Totals, Undecodable> {
    let (sort, count) = (reader.u8()?, reader.u8()?);
    let mut named = Vec::with_capacity(usize::from(count));
    for _ in 0..count {
        let meter = reader.text()?;
        let amount = Amount::parse(reader.text()?).map_err(|_| Undecodable("amount"))?;
        named.push((meter, amount));
    }
    match (sort, named.as_slice()) {
        (0, []) => Ok(Totals::Default),
        (1, [(_, amount)]) => Ok(Totals::Single(*amount)),
        (2, _) => {
            let meter = |(meter, amount): (&str, Amount)| {
                MeterId::parse(meter).map(|meter| (meter, amount)).map_err(|_| Undecodable("meter"))
            };
            Ok(Totals::ByMeter(named.into_iter().map(meter).collect::<Result<_, _>>()?))
        }
        _ => Err(Undecodable("totals")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn amount(text: &str) -> Amount {
        Amount::parse(text).unwrap()
    }

    #[test]
    fn a_parked_call_reads_back_as_it_was_packed() {
        let meter = |name: &str| MeterId::parse(name).unwrap();
        for call in [
            ParkedCall::Consume { totals: Totals::Default, is_final: true },
            ParkedCall::Consume { totals: Totals::Single(amount("12.5")), is_final: false },
            ParkedCall::Release {
                incurred: Totals::ByMeter(vec![(meter("a"), amount("1")), (meter("b"), amount("0"))]),
            },
        ] {
            let bytes = call.encode();
            assert_eq!(ParkedCall::decode(&bytes), Ok(call));
            for end in 0..bytes.len() {
                assert!(ParkedCall::decode(&bytes[..end]).is_err(), "cut at {end}");
            }
        }
    }
}
