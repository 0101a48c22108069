//! Adjustments: posted once, approved by another person where they are large, and booked once.

mod grants;
mod money;
mod usage;

use diesel::pg::Pg;
use diesel::prelude::*;
use diesel::sql_types::{self, Bool, Text};
use diesel::{QueryableByName, sql_query};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use futures::FutureExt;
use rust_decimal::Decimal;
use serde_json::json;

use super::columns::{Milliseconds, MillisecondsIfAny};
use super::schema::adjustments;
use super::{BEGIN_BOOKING, Ledger, LedgerError, audit, corrections, cursors, instant, journal, number};
use crate::domain::adjustment::{AdjustmentEffect, AdjustmentId, AdjustmentState, AdjustmentTerms};
use crate::domain::entry::Posting;
use crate::domain::ids::{MeterId, Partition, TenantId};
use crate::domain::money::Currency;
use crate::domain::period::Window;
use crate::domain::signed_amount::SignedAmount;

pub use grants::AdjustmentGrant;

/// An adjustment as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredAdjustment {
    /// Its id.
    pub id: AdjustmentId,
    /// What is to be corrected.
    pub terms: AdjustmentTerms,
    /// What became of it.
    pub state: AdjustmentState,
    /// When it was posted (service time, unix ms).
    pub posted_at_ms: i64,
    /// Who posted it.
    pub posted_by: String,
    /// When it was approved or declined (service time, unix ms).
    pub decided_at_ms: Option<i64>,
    /// Who did that.
    pub decided_by: Option<String>,
    /// When it was booked (service time, unix ms).
    pub booked_at_ms: Option<i64>,
    /// What was booked: less where less was left of the grants that it voids.
    pub booked_amount: Option<SignedAmount>,
    /// The start of the closed period that it corrects (unix ms).
    pub period_start_ms: Option<i64>,
    /// The start of the period in which it is booked (unix ms).
    pub booked_in_ms: Option<i64>,
    /// The number of the statement that has it, once that is issued: only of money.
    pub statement: Option<u64>,
    /// The grants that it makes and voids, in order.
    pub grants: Vec<AdjustmentGrant>,
}

/// The period that an adjustment of usage corrects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CorrectedPeriod {
    /// Its instants.
    pub period: Window,
    /// The start of the tenant's local hour in which the usage happened (unix ms).
    pub hour_start_ms: i64,
    /// The gate's time (unix ms): it decides what is closed.
    pub gate_now_ms: i64,
}

/// How an adjustment is booked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BookedAs {
    /// As usage of a closed period.
    Usage(CorrectedPeriod),
    /// As money that is owed in the billing period that is open.
    Money(Window),
    /// By grants that are made and voided after it.
    Grants,
}

/// What is to be written of an adjustment that is booked by an entry of its own.
struct Booking {
    amount: SignedAmount,
    /// The closed period that it corrects.
    period: Option<Window>,
    booked_in: Window,
    posting: Posting,
    corrections: corrections::Corrections,
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

/// Why an adjustment of usage cannot be booked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unbookable {
    /// The period is not closed before this instant (unix ms).
    StillOpen(i64),
    /// No more than this was used there.
    BelowZero(Decimal),
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

#[derive(Queryable, Selectable)]
#[diesel(table_name = adjustments, check_for_backend(Pg))]
struct Row {
    tenant: TenantId,
    id: uuid::Uuid,
    meter: Option<MeterId>,
    effect: String,
    amount: Decimal,
    #[diesel(deserialize_as = Milliseconds)]
    happened_at: i64,
    corrects: Option<uuid::Uuid>,
    reason: String,
    reference: String,
    state: String,
    #[diesel(deserialize_as = Milliseconds)]
    posted_at: i64,
    posted_by: String,
    #[diesel(deserialize_as = MillisecondsIfAny)]
    decided_at: Option<i64>,
    decided_by: Option<String>,
    #[diesel(deserialize_as = MillisecondsIfAny)]
    booked_at: Option<i64>,
    booked_amount: Option<Decimal>,
    #[diesel(deserialize_as = MillisecondsIfAny)]
    period_start: Option<i64>,
    #[diesel(deserialize_as = MillisecondsIfAny)]
    booked_in: Option<i64>,
    currency: Option<String>,
    statement: Option<i64>,
}

#[derive(QueryableByName)]
struct Known {
    #[diesel(sql_type = Bool)]
    is_known: bool,
}

impl Row {
    fn read(self) -> Result<StoredAdjustment, LedgerError> {
        let damaged = |what: &str| LedgerError::Damaged(format!("the {what} of the adjustment {}", self.id));
        let effect = AdjustmentEffect::from_word(&self.effect).ok_or_else(|| damaged("effect"))?;
        let state = AdjustmentState::from_word(&self.state).ok_or_else(|| damaged("state"))?;
        let currency = self.currency.as_deref().map(Currency::parse).transpose();
        Ok(StoredAdjustment {
            id: AdjustmentId::from_uuid(self.id),
            terms: AdjustmentTerms {
                tenant: self.tenant,
                meter: self.meter,
                effect,
                amount: SignedAmount::from_decimal(self.amount),
                currency: currency.map_err(|_| damaged("currency"))?,
                happened_at_ms: self.happened_at,
                corrects: self.corrects,
                reason: self.reason,
                reference: self.reference,
            },
            state,
            posted_at_ms: self.posted_at,
            posted_by: self.posted_by,
            decided_at_ms: self.decided_at,
            decided_by: self.decided_by,
            booked_at_ms: self.booked_at,
            booked_amount: self.booked_amount.map(SignedAmount::from_decimal),
            period_start_ms: self.period_start,
            booked_in_ms: self.booked_in,
            statement: self.statement.map(number::unsigned).transpose()?,
            grants: Vec::new(),
        })
    }
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
    let booking = match prepare(connection, new.id, &new.terms, new.booked_as, grace_ms).await? {
        Ok(booking) => booking,
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
        carry_out(connection, partition, new.id, booking, new.now_ms).await?;
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
    let mut booking = None;
    if verdict.approves {
        booking = match prepare(connection, id, &stored.terms, verdict.booked_as, grace_ms).await? {
            Ok(booking) => booking,
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
        carry_out(connection, partition, id, booking, verdict.now_ms).await?;
    }
    let stored = find(connection, id).await?.ok_or_else(|| gone(id))?;
    Ok(Some(Decided::Now(stored)))
}

/// What is to be written of it; none where grants are made and voided after it. The partition's cursor is locked.
async fn prepare(
    connection: &mut AsyncPgConnection,
    id: AdjustmentId,
    terms: &AdjustmentTerms,
    booked_as: BookedAs,
    grace_ms: i64,
) -> Result<Result<Option<Booking>, Unbookable>, LedgerError> {
    match booked_as {
        BookedAs::Usage(corrected) => usage::prepare(connection, id, terms, corrected, grace_ms).await,
        BookedAs::Money(period) => Ok(Ok(Some(money::prepare(id, terms, period)?))),
        BookedAs::Grants => Ok(Ok(None)),
    }
}

/// Books usage and money; what changes the allowance is carried out after this transaction.
async fn carry_out(
    connection: &mut AsyncPgConnection,
    partition: Partition,
    id: AdjustmentId,
    booking: Option<Booking>,
    now_ms: i64,
) -> Result<(), LedgerError> {
    let row = adjustments::table.filter(adjustments::id.eq(id.uuid()));
    let Some(booking) = booking else {
        diesel::update(row)
            .set(adjustments::state.eq(AdjustmentState::Approved.as_str()))
            .execute(connection)
            .await?;
        return Ok(());
    };
    let period_start = booking.period.map(|period| instant::from_ms(period.start_ms)).transpose()?;
    diesel::update(row)
        .set((
            adjustments::state.eq(AdjustmentState::Booked.as_str()),
            adjustments::booked_at.eq(instant::from_ms(now_ms)?),
            adjustments::booked_amount.eq(booking.amount.decimal()),
            adjustments::period_start.eq(period_start),
            adjustments::booked_in.eq(instant::from_ms(booking.booked_in.start_ms)?),
        ))
        .execute(connection)
        .await?;
    corrections::add(connection, &booking.corrections).await?;
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
