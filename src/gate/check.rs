//! `check`: counts under light counters, which the gate alone keeps: no reservation, no event, nothing that the ledger
//! must tell.

use crate::domain::algorithms::cell::Cell;
use crate::domain::algorithms::{Parameters, calendar};
use crate::domain::amount::Units;
use crate::domain::codec::{Undecodable, Write};
use crate::domain::counter::{Counter, need};
use crate::domain::ids::{Epoch, Partition, TenantId};
use crate::domain::limit::Kind;
use crate::domain::punishment::Conduct;
use crate::domain::reservation::{COUNTERS_MAX, LINES_MAX, SubjectHash};

use super::Gate;
use super::call::Reply;
use super::conduct::readings_with_conduct;
use super::counters::{Count, check_counters, pack_counters};
use super::error::GateError;
use super::reserve::{CounterReading, read_refusing};
use super::scripts::Script;
use super::status::Status;
use super::together::{CALLS_MAX, Company, Packed};

/// As many as one call takes.
pub const CHECKS_MAX: usize = CALLS_MAX;

/// What one check asks for.
#[derive(Debug, Clone)]
pub struct CheckAsk<'a> {
    /// Whose counters; none for those of global limits, which count all tenants in the partition of their own.
    pub tenant: Option<&'a TenantId>,
    /// The subjects' hashes; scope index n of a counter is the n-th.
    pub subjects: &'a [SubjectHash],
    /// Per line, how much; none where the counters are only read.
    pub amounts: &'a [Units],
    /// The counters to measure and move, at least one.
    pub counters: &'a [Counter],
    /// The span in which all windows of the check are current: start inclusive, end exclusive, unix ms.
    pub valid: (i64, i64),
    /// When the last counter has forgotten what is counted now (unix ms).
    pub needed_until_ms: i64,
    /// Only say what would happen. Checks together all do, or none.
    pub peeks: bool,
}

/// What became of one check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckedCounters {
    /// Which counters refuse, all of them, and how long each has to be waited for, at least, in ms; none for ever. None
    /// refuses what is allowed.
    pub refusing: Vec<(usize, Option<i64>)>,
    /// The counters afterwards, in the order of the counters.
    pub readings: Vec<CounterReading>,
    /// How long the work has to wait for the queues before it, in ms; 0 where it is refused.
    pub start_after_ms: i64,
}

/// What became of checks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CheckOutcome {
    /// In the order asked.
    Decided {
        /// Of each check.
        checks: Vec<CheckedCounters>,
        /// The epoch of the counters.
        epoch: Epoch,
        /// The script's time (unix ms).
        now_ms: i64,
    },
    /// The windows were computed for another time; compute them for this one.
    StaleWindow {
        /// The script's time (unix ms).
        now_ms: i64,
    },
}

const PEEKS: u8 = 1;
const PLAIN: u8 = 2;

impl Gate {
    /// Decides checks of one partition, one after the other, each all of it or nothing; all or none of them where they
    /// are `together`. One round trip.
    pub async fn check(
        &self,
        partition: Partition,
        asks: &[CheckAsk<'_>],
        together: bool,
        now_ms: Option<i64>,
    ) -> Result<CheckOutcome, GateError> {
        let malformed = |reason| GateError::Malformed { script: "check", reason };
        if !(1..=CHECKS_MAX).contains(&asks.len()) {
            return Err(malformed("it has not 1 to 16 checks"));
        }
        if together && asks.iter().any(|ask| ask.peeks != asks[0].peeks) {
            return Err(malformed("checks together are all looks, or none"));
        }
        if let [ask] = asks
            && Gate::has_company()
        {
            let epoch = self.epoch(partition).ok_or(GateError::NoEpoch(partition))?;
            let script = if ask.peeks { Script::Look } else { Script::Check };
            let company = Company { partition, epoch, now_ms, script };
            let packed = self.pack_check(partition, ask, false)?;
            if let Some(reply) = Box::pin(self.run_together(company, packed)).await? {
                return read_outcome(&reply, asks);
            }
        }
        let mut keys = vec![self.keys.meta(partition)];
        let mut arguments = self.mutating(partition, now_ms)?;
        let mut shape = Vec::with_capacity(1 + asks.len());
        shape.put_byte(together.into());
        let mut packed = Vec::with_capacity(asks.len());
        for ask in asks {
            let mut one = self.pack_check(partition, ask, asks.len() == 1)?;
            shape.put_byte(u8::try_from(one.keys.len()).unwrap_or(u8::MAX));
            keys.append(&mut one.keys);
            packed.append(&mut one.arguments);
        }
        arguments.push(shape);
        arguments.append(&mut packed);
        let script = if asks.iter().all(|ask| ask.peeks) { Script::Look } else { Script::Check };
        let reply = self.run(partition, script, &keys, &arguments).await?;
        read_outcome(&reply, asks)
    }

    /// Keys and argument of one check; whether it `is_alone` in its call, and so may take the plain path.
    fn pack_check(
        &self,
        partition: Partition,
        ask: &CheckAsk<'_>,
        is_alone: bool,
    ) -> Result<Packed, GateError> {
        // Counters that are only read may be of any meters, so their lines say nothing here.
        let count = if ask.amounts.is_empty() { Count::read } else { Count::of };
        let counts: Vec<_> = ask.counters.iter().map(count).collect();
        check_ask(ask, &counts).map_err(|reason| GateError::Malformed { script: "check", reason })?;
        let mut keys = Vec::with_capacity(1 + ask.subjects.len());
        match ask.tenant {
            None => keys.push(self.keys.global(partition)),
            Some(tenant) => {
                keys.push(self.keys.light(partition, tenant, None));
                let of_subject = |hash: &SubjectHash| self.keys.light(partition, tenant, Some(*hash));
                keys.extend(ask.subjects.iter().map(of_subject));
            }
        }
        let arguments = vec![pack_ask(ask, &counts, is_alone)];
        Ok(Packed { keys, arguments })
    }
}

fn read_outcome(reply: &Reply, asks: &[CheckAsk<'_>]) -> Result<CheckOutcome, GateError> {
    let now_ms = reply.now_ms;
    match reply.status {
        Status::Done => {
            Ok(CheckOutcome::Decided { checks: read_checks(reply, asks)?, epoch: reply.epoch, now_ms })
        }
        Status::StaleWindow => Ok(CheckOutcome::StaleWindow { now_ms }),
        _ => Err(Undecodable("a status of check").into()),
    }
}

fn check_ask(ask: &CheckAsk<'_>, counts: &[Count<'_>]) -> Result<(), &'static str> {
    if ask.amounts.len() > LINES_MAX || !(1..=COUNTERS_MAX).contains(&counts.len()) {
        return Err("a check has more than 8 lines, or not 1 to 32 counters");
    }
    if ask.counters.iter().any(Counter::is_quota) {
        return Err("a quota is no light counter");
    }
    if ask.tenant.is_none() && !ask.subjects.is_empty() {
        return Err("a subject of no tenant");
    }
    check_counters(counts, ask.subjects.len(), ask.amounts.len().max(1))
}

/// Layout: `B flags  B lines  i8 valid_from  i8 valid_until  i8 needed_until`; where flags say plain, of the only
/// counter `B scope  c8 field i8 capacity  i8 need` and `i8 start  i8 end` of its window, or `i8 length  i8` 1 where
/// that is aligned; per line `i8 amount`; then the counters as [`pack_counters`] has them.
fn pack_ask(ask: &CheckAsk<'_>, counts: &[Count<'_>], is_alone: bool) -> Vec<u8> {
    let plain = plain_window(ask).filter(|_| is_alone);
    let mut out = Vec::with_capacity(96 + 56 * counts.len());
    let flags = [(ask.peeks, PEEKS), (plain.is_some(), PLAIN)];
    out.put_byte(flags.iter().map(|(is_set, flag)| if *is_set { *flag } else { 0 }).sum());
    out.put_byte(u8::try_from(ask.amounts.len()).unwrap_or(u8::MAX));
    out.put_8(ask.valid.0);
    out.put_8(ask.valid.1);
    out.put_8(ask.needed_until_ms);
    if let Some((counter, window)) = plain {
        out.put_byte(counter.scope_index);
        out.extend_from_slice(&counter.field.0);
        out.put_8(counter.refuses_above().get());
        out.put_8(need(&counter.lines, ask.amounts));
        out.put_8(window.0);
        out.put_8(window.1);
    }
    for amount in ask.amounts {
        out.put_8(amount.get());
    }
    pack_counters(counts, ask.amounts, &mut out);
    out
}

/// The only counter of a check that the script's plain path may decide, and its window: start and end, or length and
/// whether aligned.
fn plain_window<'a>(ask: &CheckAsk<'a>) -> Option<(&'a Counter, (i64, i64))> {
    let [counter] = ask.counters else { return None };
    let window = match counter.parameters {
        Parameters::Calendar(calendar::Parameters { window }) => (window.start_ms, window.end_ms),
        Parameters::FixedWindow(fixed) => (fixed.length_ms, i64::from(fixed.aligned)),
        _ => return None,
    };
    let is_plain = counter.kind != Kind::Shadow && counter.punishment().is_none();
    (!ask.peeks && is_plain).then_some((counter, window))
}

fn read_checks(reply: &Reply, asks: &[CheckAsk<'_>]) -> Result<Vec<CheckedCounters>, Undecodable> {
    if reply.integer(0).is_err() {
        let ask = asks.first().ok_or(Undecodable("an answer of check"))?;
        return Ok(vec![read_plain(reply, ask)?]);
    }
    let one = |number: usize| {
        let at = 1 + 6 * number;
        let readings = readings_with_conduct(reply, at + 2, at + 3, at + 5)?;
        let start_after_ms = reply.integer(at + 4)?;
        Ok(CheckedCounters { refusing: read_refusing(reply, at)?, readings, start_after_ms })
    };
    (0..asks.len()).map(one).collect()
}

/// What the plain path answers: whether the only counter refuses, and its cell.
fn read_plain(reply: &Reply, ask: &CheckAsk<'_>) -> Result<CheckedCounters, Undecodable> {
    let counter = ask.counters.first().ok_or(Undecodable("an answer of check"))?;
    let (now_ms, capacity) = (reply.now_ms, counter.refuses_above().get());
    let (&refuses, cell) = reply.bytes(0)?.split_first().ok_or(Undecodable("an answer of check"))?;
    let cell = Cell::decode(cell)?;
    let resets_at_ms = match counter.parameters {
        Parameters::FixedWindow(fixed) => fixed.end_of(cell.mark),
        _ => counter.ends_at_ms(now_ms),
    };
    let reading = CounterReading {
        consumed: Units::new(cell.consumed).ok_or(Undecodable("units"))?,
        reserved: Units::ZERO,
        room: Some(capacity - cell.consumed),
        resets_at_ms: Some(resets_at_ms),
        next_hold_ends_at_ms: None,
        current: true,
        would_refuse: false,
        conduct: Conduct::default(),
    };
    let wait_ms = (need(&counter.lines, ask.amounts) <= capacity).then_some((resets_at_ms - now_ms).max(0));
    let refusing = if refuses == 0 { Vec::new() } else { vec![(0, wait_ms)] };
    Ok(CheckedCounters { refusing, readings: vec![reading], start_after_ms: 0 })
}
