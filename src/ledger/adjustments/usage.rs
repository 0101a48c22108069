//! Usage of a closed period that was recorded wrongly: the difference is booked in the period that is open now, apart
//! from its allowance, and a note to the closed period's statement bills it.

use std::collections::BTreeSet;

use diesel::sql_types::{Numeric, Text, Timestamptz};
use diesel::{QueryableByName, sql_query};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use rust_decimal::Decimal;

use super::{Booking, CorrectedPeriod, Unbookable};
use crate::domain::adjustment::{AdjustmentId, AdjustmentTerms};
use crate::domain::amount::Amount;
use crate::domain::entry::{PostedLine, Posting};
use crate::domain::ids::{MeterId, TenantId};
use crate::domain::movements::corrections::in_closed_period;
use crate::domain::period::Window;
use crate::ledger::corrections::Corrections;
use crate::ledger::{LedgerError, instant, open_periods};

/// What is to be written. The partition's cursor is locked.
pub(super) async fn prepare(
    connection: &mut AsyncPgConnection,
    id: AdjustmentId,
    terms: &AdjustmentTerms,
    corrected: CorrectedPeriod,
    grace_ms: i64,
) -> Result<Result<Option<Booking>, Unbookable>, LedgerError> {
    let CorrectedPeriod { period, hour_start_ms, gate_now_ms } = corrected;
    let no_meter = || LedgerError::Refused("an adjustment of usage names a meter".to_owned());
    let (tenant, meter) = (&terms.tenant, terms.meter.as_ref().ok_or_else(no_meter)?);
    let asked = BTreeSet::from([(tenant.clone(), meter.clone(), period.start_ms)]);
    let open = open_periods::read(connection, &asked, Some(grace_ms)).await?;
    let unknown =
        |error: crate::domain::open_periods::UnknownCalendar| LedgerError::Refused(error.to_string());
    let booked_in = open.stands_in(tenant, meter, period, gate_now_ms).map_err(unknown)?;
    if booked_in.start_ms == period.start_ms {
        return Ok(Err(Unbookable::StillOpen(period.end_ms.saturating_add(grace_ms))));
    }
    if terms.amount.is_negative() {
        let used = corrected_use(connection, (tenant, meter), period).await?;
        if used + terms.amount.decimal() < Decimal::ZERO {
            return Ok(Err(Unbookable::BelowZero(used)));
        }
    }
    let size = terms.amount.size();
    let (was, now) = if terms.amount.is_negative() { (size, Amount::ZERO) } else { (Amount::ZERO, size) };
    let movements = in_closed_period(booked_in, was, now);
    let line = PostedLine { meter: meter.clone(), movements, first_leg: 0, begins_to_consume: false };
    let posting = Posting {
        tenant: tenant.clone(),
        operation_id: id.uuid(),
        step: 1,
        happened_at_ms: terms.happened_at_ms,
        operation: String::new(),
        hour_start_ms,
        subjects: Vec::new(),
        lines: vec![line],
    };
    let corrections = Corrections::of_adjustment((tenant, meter), terms.amount, period, booked_in);
    let period = Some(period);
    Ok(Ok(Some(Booking { amount: terms.amount, period, booked_in, posting, corrections })))
}

#[derive(QueryableByName)]
struct Used {
    #[diesel(sql_type = Numeric)]
    consumed: Decimal,
}

/// What was used in a period, with all that is corrected of it by now.
async fn corrected_use(
    connection: &mut AsyncPgConnection,
    (tenant, meter): (&TenantId, &MeterId),
    period: Window,
) -> Result<Decimal, LedgerError> {
    let read = sql_query(include_str!("../sql/corrected_use.sql"))
        .bind::<Text, _>(tenant)
        .bind::<Text, _>(meter)
        .bind::<Timestamptz, _>(instant::from_ms(period.start_ms)?);
    let used: Used = read.get_result(connection).await?;
    Ok(used.consumed.normalize())
}
