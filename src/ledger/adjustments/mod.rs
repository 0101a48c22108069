//! Adjustments: posted once, approved by another person where they are large, and booked once.

mod carried;
mod grants;
mod money;
mod stored;
mod usage;

use chrono::{DateTime, Utc};
use diesel::QueryableByName;
use diesel::prelude::*;
use diesel::sql_types::{self, Bool, Text};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use futures::FutureExt;
use rust_decimal::Decimal;
use serde_json::json;

use super::schema::adjustments;
use super::{
    BEGIN_BOOKING, Ledger, LedgerError, audit, capacities, corrections, cursors, instant, journal, notices,
    number,
};
use crate::domain::adjustment::{AdjustmentEffect, AdjustmentId, AdjustmentState, AdjustmentTerms};
use crate::domain::entry::Posting;
use crate::domain::ids::{MeterId, Partition, TenantId};
use crate::domain::money::Currency;
use crate::domain::period::Window;
use crate::domain::signed_amount::SignedAmount;
use crate::ledger::prepared::sql_query;

use self::carried::OfCarried;
use self::stored::Row;

pub(super) use grants::carry_out_again;
pub(super) use usage::decline_discarded;

pub use grants::{AdjustmentGrant, Lowered};
pub use stored::StoredAdjustment;

/// Kind of the notice that use of a tenant was adjusted by the ledger alone.
pub const ADJUSTED_NOTICE: &str = "adjusted";

/// The period that an adjustment of usage corrects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CorrectedPeriod {
    /// Its instants.
    pub period: Window,
    /// The start of the tenant's local hour in which the usage happened (unix ms).
    pub hour_start_ms: i64,
    /// The gate's time (unix ms): it decides what is closed.
    pub gate_now_ms: i64,
    /// The operation by which the gate corrects an open period.
    pub operation: uuid::Uuid,
}

/// How an adjustment is booked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BookedAs {
    /// As usage of this period.
    Usage(CorrectedPeriod),
    /// As money that is owed in the billing period that is open.
    Money(Window),
    /// By grants that are made and voided after it.
    Grants,
}

/// What is to be written of an adjustment that is booked by an entry of its own.
struct Booking {
    amount: SignedAmount,
    /// The period that it corrects: a closed one, or that in which the use of a carried hold stands.
    period: Option<Window>,
    /// What it corrects of a carried hold.
    of_carried: Option<OfCarried>,
    booked_in: Window,
    posting: Posting,
    corrections: corrections::Corrections,
}

/// What is done of an adjustment in its transaction, and what after it.
enum Way {
    /// After it, grants are made or voided.
    Grants,
    /// In it.
    Books(Box<Booking>),
    /// After it, by the gate: in this open period and under this operation.
    Gate(Window, uuid::Uuid),
}

/// An adjustment to be posted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewAdjustment {
    /// Its id.
    pub id: AdjustmentId,
    /// What is to be corrected.
    pub terms: AdjustmentTerms,
    /// How it is booked.
    pub booked_as: BookedAs,
    /// Whether another person has to approve it.
    pub needs_approval: bool,
    /// When (service time, unix ms).
    pub now_ms: i64,
}

/// Why an adjustment cannot be booked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unbookable {
    /// Its tenant was deleted meanwhile.
    NoTenant,
    /// No more than this was used in that hour of an open period.
    NotUsedThen(Decimal),
    /// No more than this was used there.
    BelowZero(Decimal),
    /// No more than this was consumed of the carried hold in the period that starts then (unix ms).
    NotConsumedOfHold(Decimal, i64),
}

impl Unbookable {
    /// Whether it may be bookable once everything is booked that was used by now.
    pub fn may_pass(&self) -> bool {
        matches!(self, Self::NotUsedThen(_) | Self::BelowZero(_))
    }
}

/// What became of an adjustment that was to be posted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Posted {
    /// It is posted.
    Now(StoredAdjustment),
    /// It, or another one, was posted before under this key.
    Before(StoredAdjustment),
    /// It cannot be booked.
    Refused(Unbookable),
}

/// How an adjustment is decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// Whether it is approved.
    pub approves: bool,
    /// How it is booked.
    pub booked_as: BookedAs,
    /// When (service time, unix ms).
    pub now_ms: i64,
    /// By whom.
    pub actor: String,
}

/// What became of an adjustment that was to be decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decided {
    /// It is decided.
    Now(StoredAdjustment),
    /// It was decided before.
    Before(StoredAdjustment),
    /// Who posted it cannot approve it.
    SamePerson,
    /// It cannot be booked.
    Refused(Unbookable),
}

/// Which adjustments to list.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AdjustmentFilter {
    /// Only this tenant's; none for all.
    pub tenant: Option<TenantId>,
    /// Only of this meter.
    pub meter: Option<MeterId>,
    /// Only of this effect.
    pub effect: Option<AdjustmentEffect>,
    /// Only those of this state.
    pub state: Option<AdjustmentState>,
    /// Posted at or after this instant (unix ms).
    pub from_ms: Option<i64>,
    /// Posted before it (unix ms).
    pub to_ms: Option<i64>,
}

/// A place in the list of adjustments: when it was posted (unix ms), and its id.
pub type AdjustmentCursor = (i64, AdjustmentId);

#[derive(QueryableByName)]
struct Known {
    #[diesel(sql_type = Bool)]
    is_known: bool,
}

impl Ledger {
    /// Posts an adjustment, once under its id; one of usage that needs no approval is booked with it.
    pub async fn post_adjustment(&self, new: NewAdjustment, actor: &str) -> Result<Posted, LedgerError> {
        self.ensure_months_of(std::iter::once(new.terms.happened_at_ms)).await?;
        let partition = self.partition_of(&new.terms.tenant).await?;
        let (actor, grace_ms) = (actor.to_owned(), self.close_grace_ms());
        self.transact(BEGIN_BOOKING, move |connection| {
            async move { post(connection, partition, grace_ms, &new, &actor).await }.boxed()
        })
        .await
    }

    /// Decides an adjustment that is pending; one of usage that is approved is booked with it. None where there is no
    /// such adjustment.
    pub async fn decide_adjustment(
        &self,
        id: AdjustmentId,
        verdict: Verdict,
    ) -> Result<Option<Decided>, LedgerError> {
        let Some(found) = self.adjustment(id).await? else { return Ok(None) };
        self.ensure_months_of(std::iter::once(found.terms.happened_at_ms)).await?;
        let partition = self.partition_of(&found.terms.tenant).await?;
        let grace_ms = self.close_grace_ms();
        self.transact(BEGIN_BOOKING, move |connection| {
            async move { decide(connection, partition, grace_ms, id, &verdict).await }.boxed()
        })
        .await
    }

    /// The adjustment with this id.
    pub async fn adjustment(&self, id: AdjustmentId) -> Result<Option<StoredAdjustment>, LedgerError> {
        let query = || adjustments::table.filter(adjustments::id.eq(id.uuid())).select(Row::as_select());
        let Some(row) = self.first(query).await? else { return Ok(None) };
        Ok(self.with_grants(vec![row]).await?.pop())
    }

    /// Adjustments, newest first, at most `limit`, after `after`.
    pub async fn list_adjustments(
        &self,
        filter: &AdjustmentFilter,
        after: Option<AdjustmentCursor>,
        limit: usize,
    ) -> Result<Vec<StoredAdjustment>, LedgerError> {
        use adjustments::{effect, id, meter, posted_at, state, tenant};
        let after = match after {
            Some((at_ms, of_id)) => Some((instant::from_ms(at_ms)?, of_id.uuid())),
            None => None,
        };
        let from = filter.from_ms.map(instant::from_ms).transpose()?;
        let to = filter.to_ms.map(instant::from_ms).transpose()?;
        let query = || {
            let mut found = adjustments::table.select(Row::as_select()).into_boxed();
            if let Some(of_tenant) = &filter.tenant {
                found = found.filter(tenant.eq(of_tenant));
            }
            if let Some(of_meter) = &filter.meter {
                found = found.filter(meter.eq(of_meter));
            }
            if let Some(of_effect) = filter.effect {
                found = found.filter(effect.eq(of_effect.as_str()));
            }
            if let Some(in_state) = filter.state {
                found = found.filter(state.eq(in_state.as_str()));
            }
            if let Some(from) = from {
                found = found.filter(posted_at.ge(from));
            }
            if let Some(to) = to {
                found = found.filter(posted_at.lt(to));
            }
            if let Some((at, of_id)) = after {
                found = found.filter(posted_at.le(at)).filter(posted_at.lt(at).or(id.lt(of_id)));
            }
            found.order((posted_at.desc(), id.desc())).limit(number::limit(limit))
        };
        let rows = self.load(query).await?;
        self.with_grants(rows).await
    }

    /// Whether this operation is one of the tenant's: a reservation, grant or adjustment.
    pub async fn is_operation(&self, tenant: &TenantId, id: uuid::Uuid) -> Result<bool, LedgerError> {
        let query = || {
            sql_query(include_str!("../sql/is_operation.sql"))
                .bind::<Text, _>(tenant.as_str())
                .bind::<sql_types::Uuid, _>(id)
        };
        let rows: Vec<Known> = self.load(query).await?;
        Ok(rows.iter().any(|row| row.is_known))
    }

    async fn with_grants(&self, rows: Vec<Row>) -> Result<Vec<StoredAdjustment>, LedgerError> {
        let mut found = rows.into_iter().map(Row::read).collect::<Result<Vec<_>, _>>()?;
        let of_allowance = |stored: &&StoredAdjustment| stored.terms.effect == AdjustmentEffect::Allowance;
        let key = |stored: &StoredAdjustment| (stored.terms.tenant.clone(), stored.id);
        let keys: Vec<_> = found.iter().filter(of_allowance).map(key).collect();
        let mut grants = self.grants_of(&keys).await?;
        for stored in &mut found {
            stored.grants = grants.remove(&stored.id).unwrap_or_default();
        }
        Ok(found)
    }
}

async fn post(
    connection: &mut AsyncPgConnection,
    partition: Partition,
    grace_ms: i64,
    new: &NewAdjustment,
    actor: &str,
) -> Result<Posted, LedgerError> {
    // Nothing of the partition is booked, closed or billed meanwhile.
    cursors::lock(connection, &[partition]).await?;
    if let Some(stored) = find(connection, new.id).await? {
        return Ok(Posted::Before(stored));
    }
    // A tenant is deleted before it, or not any more.
    if !capacities::lock_tenant(connection, &new.terms.tenant).await? {
        return Ok(Posted::Refused(Unbookable::NoTenant));
    }
    let way = match prepare(connection, new.id, &new.terms, new.booked_as, grace_ms).await? {
        Ok(way) => way,
        Err(why) => return Ok(Posted::Refused(why)),
    };
    let terms = &new.terms;
    let values = (
        adjustments::tenant.eq(&terms.tenant),
        adjustments::id.eq(new.id.uuid()),
        adjustments::meter.eq(&terms.meter),
        adjustments::effect.eq(terms.effect.as_str()),
        adjustments::amount.eq(terms.amount.decimal()),
        adjustments::currency.eq(terms.currency.map(Currency::code)),
        adjustments::happened_at.eq(instant::from_ms(terms.happened_at_ms)?),
        adjustments::corrects.eq(terms.corrects),
        adjustments::reason.eq(&terms.reason),
        adjustments::reference.eq(&terms.reference),
        adjustments::state.eq(AdjustmentState::Pending.as_str()),
        adjustments::posted_at.eq(instant::from_ms(new.now_ms)?),
        adjustments::posted_by.eq(actor),
    );
    diesel::insert_into(adjustments::table).values(values).execute(connection).await?;
    let detail = json!({
        "tenant": terms.tenant, "meter": terms.meter, "effect": terms.effect, "amount": terms.amount,
        "currency": terms.currency, "reason": terms.reason, "reference": terms.reference
    });
    audit::note(connection, actor, "create", &object(new.id), detail).await?;
    if !new.needs_approval {
        carry_out(connection, partition, (new.id, terms), way, new.now_ms).await?;
    }
    find(connection, new.id).await?.map(Posted::Now).ok_or_else(|| gone(new.id))
}

async fn decide(
    connection: &mut AsyncPgConnection,
    partition: Partition,
    grace_ms: i64,
    id: AdjustmentId,
    verdict: &Verdict,
) -> Result<Option<Decided>, LedgerError> {
    cursors::lock(connection, &[partition]).await?;
    let Some(stored) = find(connection, id).await? else { return Ok(None) };
    if stored.state != AdjustmentState::Pending {
        return Ok(Some(Decided::Before(stored)));
    }
    if verdict.approves && stored.posted_by == verdict.actor {
        return Ok(Some(Decided::SamePerson));
    }
    let mut way = Way::Grants;
    if verdict.approves {
        way = match prepare(connection, id, &stored.terms, verdict.booked_as, grace_ms).await? {
            Ok(way) => way,
            Err(why) => return Ok(Some(Decided::Refused(why))),
        };
    }
    let state = if verdict.approves { AdjustmentState::Approved } else { AdjustmentState::Declined };
    diesel::update(adjustments::table.filter(adjustments::id.eq(id.uuid())))
        .set((
            adjustments::state.eq(state.as_str()),
            adjustments::decided_at.eq(instant::from_ms(verdict.now_ms)?),
            adjustments::decided_by.eq(&verdict.actor),
        ))
        .execute(connection)
        .await?;
    let action = if verdict.approves { "approve" } else { "decline" };
    let detail = json!({ "tenant": stored.terms.tenant, "meter": stored.terms.meter });
    audit::note(connection, &verdict.actor, action, &object(id), detail).await?;
    if verdict.approves {
        carry_out(connection, partition, (id, &stored.terms), way, verdict.now_ms).await?;
    }
    let stored = find(connection, id).await?.ok_or_else(|| gone(id))?;
    Ok(Some(Decided::Now(stored)))
}

/// How it is booked. The partition's cursor is locked.
async fn prepare(
    connection: &mut AsyncPgConnection,
    id: AdjustmentId,
    terms: &AdjustmentTerms,
    booked_as: BookedAs,
    grace_ms: i64,
) -> Result<Result<Way, Unbookable>, LedgerError> {
    match booked_as {
        BookedAs::Usage(corrected) => usage::prepare(connection, id, terms, corrected, grace_ms).await,
        BookedAs::Money(period) => Ok(Ok(Way::Books(Box::new(money::prepare(id, terms, period)?)))),
        BookedAs::Grants => Ok(Ok(Way::Grants)),
    }
}

/// Books money, and usage of a closed period; what changes the allowance, or an open period, is carried out after this
/// transaction.
async fn carry_out(
    connection: &mut AsyncPgConnection,
    partition: Partition,
    (id, terms): (AdjustmentId, &AdjustmentTerms),
    way: Way,
    now_ms: i64,
) -> Result<(), LedgerError> {
    let row = adjustments::table.filter(adjustments::id.eq(id.uuid()));
    let approved = adjustments::state.eq(AdjustmentState::Approved.as_str());
    let booking = match way {
        Way::Grants => {
            diesel::update(row).set(approved).execute(connection).await?;
            return Ok(());
        }
        Way::Gate(period, operation) => {
            let start = instant::from_ms(period.start_ms)?;
            let at_gate =
                (adjustments::gate_period.eq(start), adjustments::gate_operation.eq(Some(operation)));
            diesel::update(row).set((approved, at_gate)).execute(connection).await?;
            if let Some(meter) = terms.meter.as_ref().filter(|_| terms.amount.is_negative()) {
                usage::bound_capacity(connection, (&terms.tenant, meter), period.start_ms).await?;
            }
            return Ok(());
        }
        Way::Books(booking) => booking,
    };
    let period_start = booking.period.map(|period| instant::from_ms(period.start_ms)).transpose()?;
    let of_carried = booking.of_carried.as_ref();
    diesel::update(row)
        .set((
            adjustments::gate_period.eq(None::<DateTime<Utc>>),
            adjustments::gate_operation.eq(None::<uuid::Uuid>),
            adjustments::state.eq(AdjustmentState::Booked.as_str()),
            adjustments::booked_at.eq(instant::from_ms(now_ms)?),
            adjustments::booked_amount.eq(booking.amount.decimal()),
            adjustments::period_start.eq(period_start),
            adjustments::booked_in.eq(instant::from_ms(booking.booked_in.start_ms)?),
            adjustments::carried_hold.eq(of_carried.map(|of| of.hold)),
            adjustments::of_held.eq(of_carried.map_or(Decimal::ZERO, |of| of.of_held)),
        ))
        .execute(connection)
        .await?;
    corrections::add(connection, &booking.corrections).await?;
    if booking.period.is_some() {
        notices::tell(connection, ADJUSTED_NOTICE, booking.posting.tenant.as_str(), 0).await?;
    }
    journal::post_beside_outbox(connection, partition, vec![booking.posting]).await
}

async fn find(
    connection: &mut AsyncPgConnection,
    id: AdjustmentId,
) -> Result<Option<StoredAdjustment>, LedgerError> {
    let found = adjustments::table.filter(adjustments::id.eq(id.uuid())).select(Row::as_select());
    found.first(connection).await.optional()?.map(Row::read).transpose()
}

fn object(id: AdjustmentId) -> String {
    format!("adjustment {id}")
}

fn gone(id: AdjustmentId) -> LedgerError {
    LedgerError::Damaged(format!("the adjustment {id} is gone"))
}
