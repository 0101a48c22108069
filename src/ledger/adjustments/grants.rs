//! The grants through which adjustments of the allowance work: noted before they are made or voided, so that a run that
//! breaks off is taken up where it ended.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use diesel::prelude::*;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use futures::FutureExt;
use rust_decimal::Decimal;

use super::{Row, StoredAdjustment, usage};
use crate::domain::adjustment::{AdjustmentId, AdjustmentState};
use crate::domain::grant::GrantId;
use crate::domain::ids::{MeterId, TenantId};
use crate::domain::signed_amount::SignedAmount;
use crate::ledger::schema::{adjustment_grants, adjustments, grants};
use crate::ledger::{BEGIN, Ledger, LedgerError, instant, number};

/// A grant that an adjustment makes or voids.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AdjustmentGrant {
    /// Its place among the adjustment's, from 0.
    pub place: i16,
    /// Its id.
    pub id: GrantId,
    /// Whether it is voided, not made.
    pub is_voided: bool,
}

/// How an adjustment that lowers the allowance was carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lowered {
    /// By how much the allowance has changed.
    pub changed: SignedAmount,
    /// How much of the grants that it voids was unburnt.
    pub voided: Decimal,
    /// How many grants it has noted, voided and made.
    pub notes: usize,
}

impl Ledger {
    /// The grants of these adjustments, each in order.
    pub(super) async fn grants_of(
        &self,
        of: &[(TenantId, AdjustmentId)],
    ) -> Result<HashMap<AdjustmentId, Vec<AdjustmentGrant>>, LedgerError> {
        let mut found: HashMap<AdjustmentId, Vec<AdjustmentGrant>> = HashMap::new();
        if of.is_empty() {
            return Ok(found);
        }
        let query = || {
            adjustment_grants::table
                .filter(adjustment_grants::tenant.eq_any(of.iter().map(|(tenant, _)| tenant)))
                .filter(adjustment_grants::adjustment.eq_any(of.iter().map(|(_, id)| id.uuid())))
                .order((adjustment_grants::adjustment, adjustment_grants::place))
                .select((
                    adjustment_grants::adjustment,
                    adjustment_grants::place,
                    adjustment_grants::grant_id,
                    adjustment_grants::is_voided,
                ))
        };
        let rows: Vec<(uuid::Uuid, i16, uuid::Uuid, bool)> = self.load(query).await?;
        for (adjustment, place, grant, is_voided) in rows {
            let of_it = found.entry(AdjustmentId::from_uuid(adjustment)).or_default();
            of_it.push(AdjustmentGrant { place, id: GrantId::from_uuid(grant), is_voided });
        }
        Ok(found)
    }

    /// Whether an adjustment that has not begun waits for another one of the same allowance: one that has begun, or
    /// was posted before. At once, it would find neither what that one has voided nor what it grants again.
    pub async fn has_adjustment_before(&self, stored: &StoredAdjustment) -> Result<bool, LedgerError> {
        let query = || {
            adjustments::table
                .filter(adjustments::tenant.eq(&stored.terms.tenant))
                .filter(adjustments::meter.eq(&stored.terms.meter))
                .filter(adjustments::effect.eq(stored.terms.effect.as_str()))
                .filter(adjustments::state.eq(AdjustmentState::Approved.as_str()))
                .filter(adjustments::id.ne(stored.id.uuid()))
                .select(Row::as_select())
        };
        let rows = self.load(query).await?;
        let place = |one: &StoredAdjustment| (one.posted_at_ms, one.id.uuid());
        let goes_first = |one: &StoredAdjustment| !one.grants.is_empty() || place(one) < place(stored);
        Ok(self.with_grants(rows).await?.iter().any(goes_first))
    }

    /// Notes the next grant of an adjustment, and returns all of them. Where another run was faster, its note stays;
    /// where another adjustment voids the grant, or another run has booked this one meanwhile, there is none.
    pub async fn note_adjustment_grant(
        &self,
        stored: &StoredAdjustment,
        grant: AdjustmentGrant,
    ) -> Result<Vec<AdjustmentGrant>, LedgerError> {
        let values = (
            adjustment_grants::tenant.eq(stored.terms.tenant.clone()),
            adjustment_grants::adjustment.eq(stored.id.uuid()),
            adjustment_grants::place.eq(grant.place),
            adjustment_grants::grant_id.eq(grant.id.uuid()),
            adjustment_grants::is_voided.eq(grant.is_voided),
        );
        let note = diesel::insert_into(adjustment_grants::table).values(values).on_conflict_do_nothing();
        let (id, booked) = (stored.id.uuid(), stored.booked_amount.map(SignedAmount::decimal));
        self.transact(BEGIN, move |connection| {
            async move {
                lock(connection, id).await?;
                let stands: (String, Option<Decimal>) = adjustments::table
                    .filter(adjustments::id.eq(id))
                    .select((adjustments::state, adjustments::booked_amount))
                    .first(connection)
                    .await?;
                if stands == (AdjustmentState::Approved.as_str().to_owned(), booked) {
                    note.execute(connection).await?;
                }
                Ok(())
            }
            .boxed()
        })
        .await?;
        Ok(self
            .grants_of(&[(stored.terms.tenant.clone(), stored.id)])
            .await?
            .remove(&stored.id)
            .unwrap_or_default())
    }

    /// Notes that an approved adjustment is in the books with this amount, or, without one, that it cannot be.
    pub async fn note_adjusted(
        &self,
        id: AdjustmentId,
        booked: Option<SignedAmount>,
        now_ms: i64,
    ) -> Result<(), LedgerError> {
        let now = instant::from_ms(now_ms)?;
        self.transact(BEGIN, move |connection| {
            async move {
                let state = booked.map_or(AdjustmentState::Declined, |_| AdjustmentState::Booked);
                let row = adjustments::table.filter(adjustments::id.eq(id.uuid()));
                let gate_period: Option<DateTime<Utc>> =
                    row.select(adjustments::gate_period).first(connection).await.optional()?.flatten();
                let at_gate = gate_period.filter(|_| booked.is_some());
                let noted: Option<(TenantId, Option<MeterId>, Decimal)> = diesel::update(adjustments::table)
                    .filter(adjustments::id.eq(id.uuid()))
                    .filter(adjustments::state.eq(AdjustmentState::Approved.as_str()))
                    .set((
                        adjustments::state.eq(state.as_str()),
                        adjustments::booked_at.eq(booked.map(|_| now)),
                        adjustments::booked_amount.eq(booked.map(SignedAmount::decimal)),
                        adjustments::period_start.eq(at_gate),
                        adjustments::booked_in.eq(at_gate),
                    ))
                    .returning((adjustments::tenant, adjustments::meter, adjustments::amount))
                    .get_result(connection)
                    .await
                    .optional()?;
                match (noted, gate_period) {
                    (Some((tenant, Some(meter), amount)), Some(start)) if amount < Decimal::ZERO => {
                        usage::bound_capacity(connection, (&tenant, &meter), start.timestamp_millis()).await
                    }
                    _ => Ok(()),
                }
            }
            .boxed()
        })
        .await
    }

    /// Notes that an approved adjustment that lowers the allowance is in the books as it was carried out, unless
    /// another run has noted more grants of it, or more or less of them is voided by now. Returns whether it is noted.
    pub async fn note_lowered(
        &self,
        id: AdjustmentId,
        lowered: Lowered,
        now_ms: i64,
    ) -> Result<bool, LedgerError> {
        let now = instant::from_ms(now_ms)?;
        self.transact(BEGIN, move |connection| {
            async move {
                lock(connection, id.uuid()).await?;
                let notes: i64 = adjustment_grants::table
                    .filter(adjustment_grants::adjustment.eq(id.uuid()))
                    .count()
                    .get_result(connection)
                    .await?;
                // What another run is voiding is not booked yet, so that the sum alone would not show it.
                let is_whole = usize::try_from(notes) == Ok(lowered.notes);
                if !is_whole || voided_by(connection, id.uuid()).await? != lowered.voided {
                    return Ok(false);
                }
                let approved = adjustments::table
                    .filter(adjustments::id.eq(id.uuid()))
                    .filter(adjustments::state.eq(AdjustmentState::Approved.as_str()));
                let booked = (
                    adjustments::state.eq(AdjustmentState::Booked.as_str()),
                    adjustments::booked_at.eq(Some(now)),
                    adjustments::booked_amount.eq(Some(lowered.changed.decimal())),
                );
                Ok(diesel::update(approved).set(booked).execute(connection).await? > 0)
            }
            .boxed()
        })
        .await
    }

    /// Adjustments that are approved and not booked, the earliest first: those after this one (when it was posted in
    /// unix ms, and its id).
    pub async fn adjustments_to_carry_out(
        &self,
        after: Option<(i64, AdjustmentId)>,
        limit: usize,
    ) -> Result<Vec<StoredAdjustment>, LedgerError> {
        let after = match after {
            Some((at_ms, of_id)) => Some((instant::from_ms(at_ms)?, of_id.uuid())),
            None => None,
        };
        let query = || {
            use adjustments::{id, posted_at, state};
            let approved = adjustments::table.filter(state.eq(AdjustmentState::Approved.as_str()));
            let mut found = approved.into_boxed();
            if let Some((at, of_id)) = after {
                found = found.filter(posted_at.gt(at).or(posted_at.eq(at).and(id.gt(of_id))));
            }
            found.order((posted_at, id)).limit(number::limit(limit)).select(Row::as_select())
        };
        let rows = self.load(query).await?;
        self.with_grants(rows).await
    }
}

/// Has the adjustment be carried out again that lowered the allowance by voiding this grant: more of it is voided
/// since, which it grants again.
pub(in crate::ledger) async fn carry_out_again(
    connection: &mut AsyncPgConnection,
    tenant: &TenantId,
    voided: GrantId,
) -> Result<(), LedgerError> {
    // A grant is voided by one adjustment at the most.
    let by: Option<uuid::Uuid> = adjustment_grants::table
        .filter(adjustment_grants::tenant.eq(tenant))
        .filter(adjustment_grants::grant_id.eq(voided.uuid()))
        .filter(adjustment_grants::is_voided)
        .select(adjustment_grants::adjustment)
        .first(connection)
        .await
        .optional()?;
    let Some(by) = by else { return Ok(()) };
    // One that is being booked is waited for; `note_lowered` then sees what is voided more.
    lock(connection, by).await?;
    let booked = adjustments::table
        .filter(adjustments::id.eq(by))
        .filter(adjustments::state.eq(AdjustmentState::Booked.as_str()));
    // What was booked of it stays: so it voids no further grants.
    let approved = (
        adjustments::state.eq(AdjustmentState::Approved.as_str()),
        adjustments::booked_at.eq(None::<DateTime<Utc>>),
    );
    diesel::update(booked).set(approved).execute(connection).await?;
    Ok(())
}

async fn lock(connection: &mut AsyncPgConnection, adjustment: uuid::Uuid) -> Result<(), LedgerError> {
    let row = adjustments::table.filter(adjustments::id.eq(adjustment)).select(adjustments::id).for_update();
    let _: Option<uuid::Uuid> = row.first(connection).await.optional()?;
    Ok(())
}

/// How much of the grants that this adjustment voids was unburnt, as far as that is booked.
async fn voided_by(
    connection: &mut AsyncPgConnection,
    adjustment: uuid::Uuid,
) -> Result<Decimal, LedgerError> {
    let of_grants =
        grants::tenant.eq(adjustment_grants::tenant).and(grants::id.eq(adjustment_grants::grant_id));
    let settled: Option<Decimal> = adjustment_grants::table
        .inner_join(grants::table.on(of_grants))
        .filter(adjustment_grants::adjustment.eq(adjustment))
        .filter(adjustment_grants::is_voided)
        .filter(grants::voided_at.is_not_null())
        .select(diesel::dsl::sum(grants::settled_amount))
        .first(connection)
        .await?;
    Ok(settled.unwrap_or_default())
}
