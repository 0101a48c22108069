//! The close of one period: what it books and notes.

use diesel::sql_types::{Array, Numeric, Text, Timestamptz};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use rust_decimal::Decimal;

use super::{EndedPeriod, Standing};
use crate::domain::amount::Amount;
use crate::domain::entry::{PostedLine, Posting};
use crate::domain::movements::Movement;
use crate::domain::movements::close::{carry_holds, go_on, repay_overage, settle, settle_overage};
use crate::domain::period::Window;
use crate::domain::uuid_id;
use crate::ledger::carried_holds::Carried;
use crate::ledger::held_parts::CarriedLeft;
use crate::ledger::prepared::sql_query;
use crate::ledger::rollovers::Left;
use crate::ledger::{LedgerError, instant};

/// The close of one period.
pub(super) struct Closure {
    pub(super) ended: EndedPeriod,
    pub(super) closed_at_ms: i64,
    rolled: Decimal,
    added: Decimal,
    lapsed: Decimal,
    overage: Decimal,
    repaid: Decimal,
    pub(super) carried: Option<Carried>,
    pub(super) posting: Posting,
}

impl Closure {
    /// `next` is the period to which open holds go.
    pub(super) fn of(
        row: Standing,
        left: Option<Left>,
        next: Option<Window>,
        closed_at_ms: impl Fn(&EndedPeriod) -> i64,
    ) -> Self {
        let (charged, overage) = (row.charged(), row.overage());
        let (available, held, ended) = (row.available, unused(row.reserved), row.ended.read());
        let closed_at_ms = closed_at_ms(&ended);
        let mut movements = next.map_or(Vec::new(), |next| carry_holds(ended.period, next, held, available));
        let available = available + charged;
        let rolled = left.as_ref().map_or(Amount::ZERO, |left| left.rolled);
        let added = left.as_ref().map_or(Amount::ZERO, |left| left.added);
        match left.as_ref().and_then(|left| left.next) {
            Some(next) => {
                movements.extend(go_on(ended.period, next, unused(available), (rolled, added)));
                movements.extend(settle_overage(ended.period, available));
            }
            None => movements.extend(settle(ended.period, available)),
        }
        let repaid = left.as_ref().map_or(Decimal::ZERO, |left| left.repaid);
        if let Some(next) = left.as_ref().and_then(|left| left.next) {
            movements.extend(repay_overage(next, unused(overage), unused(repaid)));
        }
        Self {
            closed_at_ms,
            rolled: rolled.decimal(),
            added: added.decimal(),
            lapsed: unused(available).decimal() - rolled.decimal(),
            overage,
            repaid,
            carried: next.map(|next| Carried {
                tenant: ended.tenant.clone(),
                meter: ended.meter.clone(),
                start_ms: ended.period.start_ms,
                next_start_ms: next.start_ms,
                held,
                charged,
                left: left.map(CarriedLeft::from).unwrap_or_default(),
            }),
            posting: posting(&ended, closed_at_ms, movements),
            ended,
        }
    }
}

fn unused(available: Decimal) -> Amount {
    Amount::from_decimal(available).unwrap_or(Amount::ZERO)
}

/// Notes that these periods are closed.
pub(super) async fn note(
    connection: &mut AsyncPgConnection,
    closures: &[Closure],
) -> Result<(), LedgerError> {
    let periods = || closures.iter().map(|closure| closure.ended.period);
    let note = sql_query(include_str!("../sql/note_closures.sql"))
        .bind::<Array<Text>, _>(closures.iter().map(|closure| &closure.ended.tenant).collect::<Vec<_>>())
        .bind::<Array<Text>, _>(closures.iter().map(|closure| &closure.ended.meter).collect::<Vec<_>>())
        .bind::<Array<Timestamptz>, _>(instant::all_from_ms(periods().map(|period| period.start_ms))?)
        .bind::<Array<Timestamptz>, _>(instant::all_from_ms(periods().map(|period| period.end_ms))?)
        .bind::<Array<Timestamptz>, _>(instant::all_from_ms(closures.iter().map(|one| one.closed_at_ms))?)
        .bind::<Array<Numeric>, _>(closures.iter().map(|closure| closure.lapsed).collect::<Vec<_>>())
        .bind::<Array<Numeric>, _>(closures.iter().map(|closure| closure.overage).collect::<Vec<_>>())
        .bind::<Array<Numeric>, _>(closures.iter().map(|closure| closure.rolled).collect::<Vec<_>>())
        .bind::<Array<Numeric>, _>(closures.iter().map(|closure| closure.repaid).collect::<Vec<_>>())
        .bind::<Array<Numeric>, _>(closures.iter().map(|closure| closure.added).collect::<Vec<_>>());
    note.execute(connection).await?;
    Ok(())
}

/// The entries say when the period was closed, so that the books do not depend on when they were booked.
fn posting(ended: &EndedPeriod, closed_at_ms: i64, movements: Vec<Movement>) -> Posting {
    let line = PostedLine { meter: ended.meter.clone(), movements, first_leg: 0, begins_to_consume: false };
    Posting {
        tenant: ended.tenant.clone(),
        operation_id: operation_id(ended),
        step: 1,
        happened_at_ms: closed_at_ms,
        operation: String::new(),
        hour_start_ms: ended.period.start_ms,
        subjects: Vec::new(),
        lines: vec![line],
    }
}

/// The id is a hash of what is closed: the same close is the same operation.
fn operation_id(ended: &EndedPeriod) -> uuid::Uuid {
    let mut hasher = blake3::Hasher::new_derive_key("tollgate period closure v1");
    for part in [ended.tenant.as_str(), ended.meter.as_str()] {
        hasher.update(part.as_bytes());
        hasher.update(&[0]);
    }
    hasher.update(&ended.period.start_ms.to_le_bytes());
    uuid_id::of_hash(&hasher)
}
