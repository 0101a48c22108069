//! Usage that was recorded wrongly. Of a closed period the difference is booked in the period that is open now, apart
//! from its allowance, and a note to the closed period's statement bills it. Of an open period the gate corrects it,
//! but for what it never counted there.

use std::collections::BTreeSet;

use diesel::QueryableByName;
use diesel::sql_types::{self, Nullable, Numeric, Text, Timestamptz};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use futures::FutureExt;
use rust_decimal::Decimal;
use serde_json::json;

use super::carried::{self, CarriedHold, OfCarried};
use super::{Booking, CorrectedPeriod, Unbookable, Way, carry_out, find, object};
use crate::domain::adjustment::{AdjustmentId, AdjustmentState, AdjustmentTerms};
use crate::domain::amount::Amount;
use crate::domain::entry::{PostedLine, Posting};
use crate::domain::ids::{MeterId, ReservationId, TenantId};
use crate::domain::movements::corrections::{in_closed_period, of_carried_hold};
use crate::domain::open_periods::UnknownCalendar;
use crate::domain::period::Window;
use crate::ledger::columns::Milliseconds;
use crate::ledger::corrections::Corrections;
use crate::ledger::prepared::sql_query;
use crate::ledger::{
    BEGIN_BOOKING, Ledger, LedgerError, audit, capacities, cursors, instant, open_periods, quarantine,
    reservations,
};

impl Ledger {
    /// Whether the operation by which the gate corrects an open period is booked, or waits in the quarantine.
    pub async fn is_correction_known(&self, operation: uuid::Uuid) -> Result<bool, LedgerError> {
        let operation = ReservationId::from_bytes(operation.into_bytes());
        self.read(move |connection| is_known(connection, operation).boxed()).await
    }

    /// Books an adjustment that the gate was to make in a period that is closed by now, unless it has done so: then it
    /// is noted. All that the gate did before must be booked. Returns whether it is done, or why it never will be.
    pub async fn book_closed_adjustment(
        &self,
        id: AdjustmentId,
        corrected: CorrectedPeriod,
        now_ms: i64,
    ) -> Result<Result<bool, Unbookable>, LedgerError> {
        let Some(found) = self.adjustment(id).await? else { return Ok(Ok(false)) };
        let operation = ReservationId::from_bytes(corrected.operation.into_bytes());
        if self.reservation(operation).await?.is_some() {
            self.note_adjusted(id, Some(found.terms.amount), now_ms).await?;
            return Ok(Ok(true));
        }
        self.ensure_months_of(std::iter::once(found.terms.happened_at_ms)).await?;
        let partition = self.partition_of(&found.terms.tenant).await?;
        let grace_ms = self.close_grace_ms();
        self.transact(BEGIN_BOOKING, move |connection| {
            async move {
                cursors::lock(connection, &[partition]).await?;
                let Some(stored) = find(connection, id).await? else { return Ok(Ok(false)) };
                if stored.state != AdjustmentState::Approved {
                    return Ok(Ok(true));
                }
                // What the gate did is booked since, which the next run notes, or waits for somebody who decides about
                // it.
                if is_known(connection, operation).await? {
                    return Ok(Ok(false));
                }
                match prepare(connection, id, &stored.terms, corrected, grace_ms).await? {
                    Ok(way @ Way::Books(_)) => {
                        carry_out(connection, partition, (id, &stored.terms), way, now_ms).await?;
                        Ok(Ok(true))
                    }
                    Ok(_) => Ok(Ok(false)),
                    Err(why) => Ok(Err(why)),
                }
            }
            .boxed()
        })
        .await
    }
}

#[derive(QueryableByName)]
struct Declined {
    #[diesel(sql_type = sql_types::Uuid)]
    id: uuid::Uuid,
    #[diesel(sql_type = Text)]
    tenant: TenantId,
    #[diesel(sql_type = Text)]
    meter: MeterId,
    #[diesel(sql_type = Timestamptz)]
    gate_period: Milliseconds,
}

/// Declines the adjustment that the gate was to make by this operation, once its last event is discarded: somebody has
/// decided that it is not booked, so it is not tried again and bounds no capacity.
pub(in crate::ledger) async fn decline_discarded(
    connection: &mut AsyncPgConnection,
    operation: ReservationId,
    actor: &str,
) -> Result<(), LedgerError> {
    let decline =
        sql_query(include_str!("../sql/decline_correction.sql")).bind::<sql_types::Uuid, _>(operation);
    for declined in decline.load::<Declined>(connection).await? {
        let object = object(AdjustmentId::from_uuid(declined.id));
        audit::note(connection, actor, "decline", &object, json!({ "discarded": operation.to_string() }))
            .await?;
        bound_capacity(connection, (&declined.tenant, &declined.meter), declined.gate_period.0).await?;
    }
    Ok(())
}

/// The capacity of a quota has changed in the period that starts at `start_ms`: the gate is to take back use of it,
/// which may leave more unburnt of grants that have ended, or is not any more.
pub(super) async fn bound_capacity(
    connection: &mut AsyncPgConnection,
    (tenant, meter): (&TenantId, &MeterId),
    start_ms: i64,
) -> Result<(), LedgerError> {
    capacities::lock_tenant(connection, tenant).await?;
    capacities::raise_versions(connection, tenant, meter, start_ms).await
}

/// Whether the gate's correction is booked, or waits in the quarantine.
async fn is_known(connection: &mut AsyncPgConnection, operation: ReservationId) -> Result<bool, LedgerError> {
    Ok(reservations::read_one(connection, operation).await?.is_some()
        || !quarantine::waiting(connection, &[operation]).await?.is_empty())
}

/// How it is booked. The partition's cursor is locked.
pub(super) async fn prepare(
    connection: &mut AsyncPgConnection,
    id: AdjustmentId,
    terms: &AdjustmentTerms,
    corrected: CorrectedPeriod,
    grace_ms: i64,
) -> Result<Result<Way, Unbookable>, LedgerError> {
    let CorrectedPeriod { period, hour_start_ms, gate_now_ms, operation } = corrected;
    let no_meter = || LedgerError::Refused("an adjustment of usage names a meter".to_owned());
    let (tenant, meter) = (&terms.tenant, terms.meter.as_ref().ok_or_else(no_meter)?);
    let hold = carried::find(connection, terms, meter, period).await?;
    let period = hold.as_ref().map_or(period, |hold| hold.period);
    let booked_in = booked_in(connection, (tenant, meter), period, (gate_now_ms, grace_ms)).await?;
    if booked_in.start_ms == period.start_ms && hold.is_none() {
        if terms.amount.is_negative() {
            let used = used_at_gate(connection, (tenant, meter, id), (period, hour_start_ms), terms.corrects)
                .await?;
            if used + terms.amount.decimal() < Decimal::ZERO {
                return Ok(Err(Unbookable::NotUsedThen(used.max(Decimal::ZERO))));
            }
        }
        return Ok(Ok(Way::Gate(period, operation)));
    }
    let amount = terms.amount.decimal();
    if terms.amount.is_negative() {
        if let Some(hold) = &hold
            && hold.used.left() + amount < Decimal::ZERO
        {
            let left = hold.used.left().normalize();
            return Ok(Err(Unbookable::NotConsumedOfHold(left, hold.period.start_ms)));
        }
        let used = corrected_use(connection, (tenant, meter), period).await?;
        if used + amount < Decimal::ZERO {
            return Ok(Err(Unbookable::BelowZero(used)));
        }
    }
    let booking = booking((id, terms, meter), (period, booked_in, hour_start_ms), hold);
    Ok(Ok(Way::Books(Box::new(booking))))
}

/// The period that takes what corrects `period` at this gate time.
async fn booked_in(
    connection: &mut AsyncPgConnection,
    (tenant, meter): (&TenantId, &MeterId),
    period: Window,
    (gate_now_ms, grace_ms): (i64, i64),
) -> Result<Window, LedgerError> {
    let asked = BTreeSet::from([(tenant.clone(), meter.clone(), period.start_ms)]);
    let open = open_periods::read(connection, &asked, Some(grace_ms)).await?;
    let unknown = |error: UnknownCalendar| LedgerError::Refused(error.to_string());
    open.stands_in(tenant, meter, period, gate_now_ms).map_err(unknown)
}

/// What the ledger books of an adjustment of `period`, perhaps of a carried hold.
fn booking(
    (id, terms, meter): (AdjustmentId, &AdjustmentTerms, &MeterId),
    (period, booked_in, hour_start_ms): (Window, Window, i64),
    hold: Option<CarriedHold>,
) -> Booking {
    let (tenant, amount, size) = (&terms.tenant, terms.amount, terms.amount.size());
    let (was, now) = if amount.is_negative() { (size, Amount::ZERO) } else { (Amount::ZERO, size) };
    let moves = if hold.is_some() { of_carried_hold } else { in_closed_period };
    let movements = moves(booked_in, was, now);
    let of_carried = hold.map(|hold| OfCarried::of(&hold, amount.decimal()));
    let of_held = of_carried.as_ref().map_or(Decimal::ZERO, |of| of.of_held);
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
    let corrections = Corrections::of_adjustment((tenant, meter), (amount, of_held), period, booked_in);
    Booking { amount, period: Some(period), of_carried, booked_in, posting, corrections }
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

/// What the gate has counted in an hour of the work that is corrected, and in its period at the most, without what
/// others are about to take back of it. So no window that contains the hour is ever below zero.
async fn used_at_gate(
    connection: &mut AsyncPgConnection,
    (tenant, meter, id): (&TenantId, &MeterId, AdjustmentId),
    (period, hour_start_ms): (Window, i64),
    corrects: Option<uuid::Uuid>,
) -> Result<Decimal, LedgerError> {
    let read = sql_query(include_str!("../sql/used_at_gate.sql"))
        .bind::<Text, _>(tenant)
        .bind::<Text, _>(meter)
        .bind::<Timestamptz, _>(instant::from_ms(period.start_ms)?)
        .bind::<Timestamptz, _>(instant::from_ms(hour_start_ms)?)
        .bind::<sql_types::Uuid, _>(id.uuid())
        .bind::<Nullable<sql_types::Uuid>, _>(corrects);
    let used: Used = read.get_result(connection).await?;
    Ok(used.consumed.normalize())
}
