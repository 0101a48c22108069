//! `take` and `give_back`: counts under global limits, which all tenants share, before the tenant's own partition
//! decides.
//!
//! The two are not one atom. What a reservation took is remembered for as long as its call may be repeated, so that no
//! repeat takes twice; a give-back that is lost leaves a counter too high until its window ends, never too low.

use crate::domain::amount::Units;
use crate::domain::codec::{Undecodable, Write};
use crate::domain::counter::Counter;
use crate::domain::fingerprint::Fingerprint;
use crate::domain::ids::{Epoch, Partition, ReservationId};
use crate::domain::reservation::{COUNTERS_MAX, LINES_MAX};

use super::Gate;
use super::counters::{Count, check_counters, pack_counters};
use super::error::GateError;
use super::reserve::{CounterReading, read_refusing, readings_in_shadow};
use super::scripts::Script;
use super::status::Status;

/// How a request that does not fit is treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TakeMode {
    /// All of it or nothing.
    AllOrNothing,
    /// Line by line, as much as fits.
    BestEffort,
    /// All of it, whether it fits or not: work that is done already.
    Counts,
}

/// What is asked of global limits.
#[derive(Debug, Clone, Copy)]
pub struct TakeCall<'a> {
    /// The partition of their counters.
    pub partition: Partition,
    /// The reservation that takes it.
    pub id: ReservationId,
    /// What its request asks for: under the same key another request takes something of its own.
    pub fingerprint: Fingerprint,
    /// How to treat it if it does not fit.
    pub mode: TakeMode,
    /// Per line, how much.
    pub amounts: &'a [Units],
    /// The counters, 1 to 32.
    pub counters: &'a [Counter],
    /// The span in which all their windows are current: start inclusive, end exclusive, unix ms.
    pub valid: (i64, i64),
    /// When the last counter has forgotten what is counted now (unix ms).
    pub needed_until_ms: i64,
    /// Whether its call has a key, and so may be repeated.
    pub keyed: bool,
    /// The longest that its hold may live, in ms; 0 where nothing is held.
    pub max_life_ms: i64,
    /// The test clock's time in unix ms; none for Redis's own.
    pub now_ms: Option<i64>,
}

/// What global limits say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TakeOutcome {
    /// It is counted, now or by an earlier call of the same reservation.
    Taken {
        /// Per line, how much.
        granted: Vec<Units>,
        /// The counters afterwards, in the order of the counters.
        readings: Vec<CounterReading>,
        /// Whether this call counted it.
        is_new: bool,
        /// Whether the reservation's id finds it again.
        is_remembered: bool,
        /// The epoch of the counters.
        epoch: Epoch,
        /// The script's time (unix ms).
        now_ms: i64,
    },
    /// They have no room for it; nothing is counted.
    Refused {
        /// The counters as they are, in the order of the counters.
        readings: Vec<CounterReading>,
        /// All counters that refuse, each with the shortest wait in ms that can help; none where no wait helps.
        refusing: Vec<(usize, Option<i64>)>,
        /// What a best effort would have granted in each line.
        granted_by_line: Vec<Units>,
        /// The script's time (unix ms).
        now_ms: i64,
    },
    /// A counter would be beyond the largest amount; nothing is counted.
    TooLarge,
    /// The windows were computed for another time; compute them for this one.
    StaleWindow {
        /// The script's time (unix ms).
        now_ms: i64,
    },
}

/// What was taken and is not remembered: its caller alone can give it back.
#[derive(Debug, Clone)]
pub struct Taking {
    /// The epoch in which it was counted: counters of another one have never counted it.
    pub epoch: Epoch,
    /// When it was counted (unix ms).
    pub at_ms: i64,
    /// The counters by number that did not count it, a bit each: shadow limits that would have refused it.
    pub unmoved: u32,
    /// Per line, how much.
    pub granted: Vec<Units>,
    /// The counters.
    pub counters: Vec<Counter>,
}

/// What is given back.
#[derive(Debug, Clone, Copy)]
pub enum GivenBack<'a> {
    /// All that the reservation took, unless another call of it goes by that.
    Call(ReservationId),
    /// What the reservation took above these amounts, one for each line.
    Above(ReservationId, &'a [Units]),
    /// These takings.
    Takings(&'a [Taking]),
}

impl Gate {
    /// Counts under global limits, or says why not. One round trip.
    pub async fn take(&self, call: &TakeCall<'_>) -> Result<TakeOutcome, GateError> {
        let partition = call.partition;
        let mut keys = vec![self.keys.meta(partition), self.keys.global(partition)];
        let remembered_for_ms = self.remembered_for_ms(call);
        if remembered_for_ms > 0 {
            keys.push(self.keys.taken(partition, call.id));
        }
        let mut arguments = self.mutating(partition, call.now_ms)?;
        arguments.push(pack_call(call, remembered_for_ms)?);
        let reply = self.run(partition, Script::Take, &keys, &arguments).await?;
        let now_ms = reply.now_ms;
        Ok(match reply.status {
            Status::Done => TakeOutcome::Taken {
                granted: reply.units(0)?,
                readings: readings_in_shadow(&reply, 1, 2)?,
                is_new: true,
                is_remembered: reply.integer(3)? == 1,
                epoch: reply.epoch,
                now_ms,
            },
            Status::Replayed => TakeOutcome::Taken {
                granted: reply.units(0)?,
                readings: reply.readings(1)?,
                is_new: false,
                is_remembered: true,
                epoch: reply.epoch,
                now_ms,
            },
            Status::Refused => TakeOutcome::Refused {
                granted_by_line: reply.units(0)?,
                readings: readings_in_shadow(&reply, 1, 4)?,
                refusing: read_refusing(&reply, 2)?,
                now_ms,
            },
            Status::TooLarge => TakeOutcome::TooLarge,
            Status::StaleWindow => TakeOutcome::StaleWindow { now_ms },
            _ => return Err(Undecodable("a status of take").into()),
        })
    }

    /// For how long a reservation is remembered, and no longer than its windows last: 0 for one that nobody can name
    /// again.
    fn remembered_for_ms(&self, call: &TakeCall<'_>) -> i64 {
        let repeated_for_ms = if call.keyed { self.options.tombstone_keyed_ms } else { 0 };
        call.max_life_ms.saturating_add(repeated_for_ms)
    }

    /// Gives back what was taken of global limits. A repeat gives nothing back, except of takings, which are all of one
    /// epoch. One round trip.
    pub async fn give_back(
        &self,
        partition: Partition,
        given: GivenBack<'_>,
        now_ms: Option<i64>,
    ) -> Result<(), GateError> {
        let mut keys = vec![self.keys.meta(partition), self.keys.global(partition)];
        let mut arguments = match given {
            GivenBack::Takings([first, ..]) => self.mutating_in(first.epoch, now_ms),
            _ => self.mutating(partition, now_ms)?,
        };
        match given {
            GivenBack::Call(id) => {
                keys.push(self.keys.taken(partition, id));
                arguments.push(Vec::new());
            }
            GivenBack::Above(id, amounts) => {
                keys.push(self.keys.taken(partition, id));
                let mut stays = Vec::with_capacity(8 * amounts.len());
                amounts.iter().for_each(|units| stays.put_8(units.get()));
                arguments.push(stays);
            }
            GivenBack::Takings(takings) => {
                arguments.push(Vec::new());
                arguments.extend(takings.iter().map(pack_taking));
            }
        }
        let reply = self.run(partition, Script::GiveBack, &keys, &arguments).await?;
        match reply.status {
            Status::Done | Status::Kept => Ok(()),
            _ => Err(Undecodable("a status of give_back").into()),
        }
    }
}

/// Layout: `B mode  B lines  i8 valid_from  i8 valid_until  i8 needed_until  i8 remembered_for  c16 fingerprint`, per
/// line `i8 amount`, then the counters as [`pack_counters`] has them.
fn pack_call(call: &TakeCall<'_>, remembered_for_ms: i64) -> Result<Vec<u8>, GateError> {
    let malformed = |reason| GateError::Malformed { script: "take", reason };
    let counts: Vec<_> = call.counters.iter().map(Count::of).collect();
    if !(1..=LINES_MAX).contains(&call.amounts.len()) || !(1..=COUNTERS_MAX).contains(&counts.len()) {
        return Err(malformed("it has not 1 to 8 lines and 1 to 32 counters"));
    }
    check_counters(&counts, 0, call.amounts.len()).map_err(malformed)?;
    let mut out = Vec::with_capacity(64 + 56 * counts.len());
    out.put_byte(match call.mode {
        TakeMode::AllOrNothing => 0,
        TakeMode::BestEffort => 1,
        TakeMode::Counts => 2,
    });
    out.put_byte(u8::try_from(call.amounts.len()).unwrap_or(u8::MAX));
    for number in [call.valid.0, call.valid.1, call.needed_until_ms, remembered_for_ms] {
        out.put_8(number);
    }
    out.extend_from_slice(&call.fingerprint.0);
    call.amounts.iter().for_each(|units| out.put_8(units.get()));
    pack_counters(&counts, call.amounts, &mut out);
    Ok(out)
}

/// Layout: `i8 at  I4 unmoved  B lines`, per line `i8 granted`, then the counters as [`pack_counters`] has them: what
/// the scripts remember of a reservation too.
fn pack_taking(taking: &Taking) -> Vec<u8> {
    let counts: Vec<_> = taking.counters.iter().map(Count::of).collect();
    let mut out = Vec::with_capacity(32 + 56 * counts.len());
    out.put_8(taking.at_ms);
    out.put_4(taking.unmoved);
    out.put_byte(u8::try_from(taking.granted.len()).unwrap_or(u8::MAX));
    taking.granted.iter().for_each(|units| out.put_8(units.get()));
    pack_counters(&counts, &taking.granted, &mut out);
    out
}
