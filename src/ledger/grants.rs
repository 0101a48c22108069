//! Grants: stored once under their key, and booked when they begin, in the transaction that raises the capacity's
//! version.

mod stored;

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use diesel::prelude::*;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use futures::FutureExt;
use rust_decimal::Decimal;
use serde_json::json;

pub use self::stored::StoredGrant;
pub(crate) use self::stored::{Row, rollover};
use super::cuts::{self, CutOf, DueCut};
use super::grant_sales::{self, SoldIn};
use super::quotas::{self, Opening, QuotaPeriod};
use super::schema::{grants, quota_periods};
use super::{
    BEGIN_BOOKING, Ledger, LedgerError, audit, capacities, instant, journal, number, quota_changes, recurring,
};
use crate::domain::amount::{Amount, Decimals, UNITS_MAX, Units};
use crate::domain::entry::{PostedLine, Posting};
use crate::domain::grant::{GrantId, GrantTerms, Recurrence};
use crate::domain::ids::{OutboxId, Partition, TenantId};
use crate::domain::movements::Movement;
use crate::domain::movements::grants::grant;
use crate::domain::period::Window;

/// A grant to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewGrant {
    /// Its id.
    pub id: GrantId,
    /// What is granted.
    pub terms: GrantTerms,
    /// From when on (unix ms).
    pub effective_at_ms: i64,
    /// The service's time (unix ms).
    pub now_ms: i64,
    /// The billing period that is open: its statement has the price.
    pub sold_in: Window,
    /// The period in which it begins.
    pub period: QuotaPeriod,
    /// It counts for burning after this place.
    pub after: OutboxId,
}

/// What became of a grant that was to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Granted {
    /// It is made.
    Now(StoredGrant),
    /// It, or another one, was made before under this key.
    Before(StoredGrant),
    /// With all others it would be more than a quota can be.
    TooMuch,
}

/// A place in the list of grants: when it was made (unix ms), and its id.
pub type GrantCursor = (i64, GrantId);

impl Ledger {
    /// Makes a grant, once under its id. One that begins now is booked at once, into its period, which is opened if
    /// need be; a later one when it begins. What it costs is booked now in any case. Raises the capacity's version and
    /// notes that the gate has to get it.
    pub async fn create_grant(&self, new: NewGrant, actor: &str) -> Result<Granted, LedgerError> {
        self.partition_of(&new.terms.tenant).await?;
        self.ensure_months_of([new.period.period_ms.0, new.effective_at_ms, new.now_ms].into_iter()).await?;
        let (ledger, actor) = (self.clone(), actor.to_owned());
        self.transact(BEGIN_BOOKING, move |connection| {
            async move { create(&ledger, connection, &new, &actor).await }.boxed()
        })
        .await
    }

    /// Books a grant that has begun into its period, which is opened if it is not open yet. Returns whether it was not
    /// booked before.
    pub async fn begin_grant(
        &self,
        stored: StoredGrant,
        period: QuotaPeriod,
        now_ms: i64,
        after: OutboxId,
    ) -> Result<bool, LedgerError> {
        self.ensure_months_of([period.period_ms.0, stored.effective_at_ms].into_iter()).await?;
        let ledger = self.clone();
        self.transact(BEGIN_BOOKING, move |connection| {
            async move {
                capacities::lock_tenant(connection, &stored.tenant).await?;
                let Some(stored) = find(connection, stored.id).await? else { return Ok(false) };
                if stored.period_start_ms.is_some() || stored.settled_at_ms.is_some() {
                    return Ok(false);
                }
                let (start_ms, goes_on) = book(&ledger, connection, &stored, &period, after).await?;
                let start = instant::from_ms(start_ms)?;
                diesel::update(grants::table.find((&stored.tenant, stored.id.uuid())))
                    .set((grants::period_start.eq(start), grants::goes_on.eq(goes_on)))
                    .execute(connection)
                    .await?;
                capacities::raise_versions(connection, &stored.tenant, &stored.meter, now_ms).await?;
                Ok(true)
            }
            .boxed()
        })
        .await
    }

    /// Grants of one tenant or of all that have begun by `now_ms` and are not booked, by when they begin (unix ms) and
    /// id, after `after`.
    pub async fn grants_to_begin(
        &self,
        tenant: Option<&TenantId>,
        now_ms: i64,
        after: Option<(i64, GrantId)>,
        limit: usize,
    ) -> Result<Vec<StoredGrant>, LedgerError> {
        let (now, (after_ms, after_id)) = (
            instant::from_ms(now_ms)?,
            after.map_or((0, uuid::Uuid::nil()), |(at_ms, id)| (at_ms, id.uuid())),
        );
        let after = instant::from_ms(after_ms)?;
        let query = || {
            let later = grants::effective_at.gt(after);
            let mut due = grants::table.into_boxed();
            if let Some(tenant) = tenant {
                due = due.filter(grants::tenant.eq(tenant));
            }
            due.filter(grants::period_start.is_null())
                .filter(grants::settled_at.is_null())
                .filter(grants::effective_at.le(now))
                .filter(grants::effective_at.ge(after))
                .filter(later.or(grants::id.gt(after_id)))
                .order((grants::effective_at, grants::id))
                .limit(number::limit(limit))
                .select(Row::as_select())
        };
        self.load(query).await?.into_iter().map(Row::read).collect()
    }

    /// The grant with this id.
    pub async fn grant(&self, id: GrantId) -> Result<Option<StoredGrant>, LedgerError> {
        self.first(|| grants::table.filter(grants::id.eq(id.uuid())).select(Row::as_select()))
            .await?
            .map(Row::read)
            .transpose()
    }

    /// Grants of one tenant or of all, newest first, at most `limit`, after `after`; a recurring one once.
    pub async fn list_grants(
        &self,
        tenant: Option<&TenantId>,
        after: Option<GrantCursor>,
        limit: usize,
    ) -> Result<Vec<StoredGrant>, LedgerError> {
        let after = match after {
            Some((created_at_ms, id)) => Some((instant::from_ms(created_at_ms)?, id.uuid())),
            None => None,
        };
        let query = || {
            let mut found =
                grants::table.filter(grants::repeats.is_null()).select(Row::as_select()).into_boxed();
            if let Some(tenant) = tenant {
                found = found.filter(grants::tenant.eq(tenant));
            }
            if let Some((created_at, id)) = after {
                let earlier = grants::created_at.lt(created_at);
                found = found.filter(grants::created_at.le(created_at));
                found = found.filter(earlier.or(grants::id.lt(id)));
            }
            found.order((grants::created_at.desc(), grants::id.desc())).limit(number::limit(limit))
        };
        self.load(query).await?.into_iter().map(Row::read).collect()
    }
}

async fn create(
    ledger: &Ledger,
    connection: &mut AsyncPgConnection,
    new: &NewGrant,
    actor: &str,
) -> Result<Granted, LedgerError> {
    let terms = &new.terms;
    let is_there = capacities::lock_tenant(connection, &terms.tenant).await?;
    if let Some(stored) = find(connection, new.id).await? {
        return Ok(Granted::Before(stored));
    }
    if !is_there {
        return Err(capacities::no_tenant(&terms.tenant));
    }
    if !fits(connection, new).await? {
        return Ok(Granted::TooMuch);
    }
    let mut stored = StoredGrant {
        id: new.id,
        tenant: terms.tenant.clone(),
        meter: terms.meter.clone(),
        amount: terms.amount,
        kind: terms.kind,
        price: terms.price,
        priority: terms.priority,
        effective_at_ms: new.effective_at_ms,
        expires_at_ms: terms.expires_at_ms,
        recurrence: terms.recurrence,
        repeats: None,
        goes_on: false,
        rollover: terms.rollover,
        reason: terms.reason.clone(),
        fingerprint: terms.fingerprint(),
        created_at_ms: new.now_ms,
        created_by: actor.to_owned(),
        period_start_ms: None,
        voided_at_ms: None,
        settled_at_ms: None,
        settled_amount: None,
    };
    if new.effective_at_ms <= new.now_ms {
        let (start_ms, goes_on) = book(ledger, connection, &stored, &new.period, new.after).await?;
        stored = StoredGrant { period_start_ms: Some(start_ms), goes_on, ..stored };
    }
    insert(connection, &stored, new.period.decimals).await?;
    let partition = ledger.partition_of(&stored.tenant).await?;
    if stored.period_start_ms.is_none() {
        want_ahead(connection, partition, &stored, new.period.period_ms.0).await?;
    }
    let sale = SoldIn { period: new.sold_in, at_ms: new.now_ms };
    grant_sales::sell(connection, partition, &stored, sale).await?;
    if stored.recurrence == Recurrence::Period {
        recurring::give_in_open_periods(connection, partition, &stored, new.period.decimals).await?;
    }
    capacities::raise_versions(connection, &stored.tenant, &stored.meter, new.now_ms).await?;
    let detail = json!({
        "tenant": stored.tenant, "meter": stored.meter, "amount": stored.amount, "reason": stored.reason
    });
    audit::note(connection, actor, "create", &format!("grant {}", stored.id), detail).await?;
    Ok(Granted::Now(stored))
}

pub(crate) async fn find(
    connection: &mut AsyncPgConnection,
    id: GrantId,
) -> Result<Option<StoredGrant>, LedgerError> {
    let found = grants::table.filter(grants::id.eq(id.uuid())).select(Row::as_select());
    found.first(connection).await.optional()?.map(Row::read).transpose()
}

/// The grants with these ids.
pub(crate) async fn find_all(
    connection: &mut AsyncPgConnection,
    ids: Vec<uuid::Uuid>,
) -> Result<HashMap<uuid::Uuid, StoredGrant>, LedgerError> {
    let found = grants::table.filter(grants::id.eq_any(ids)).select(Row::as_select());
    let rows: Vec<Row> = found.load(connection).await?;
    rows.into_iter().map(|row| Ok((row.id(), row.read()?))).collect()
}

/// Whether all grants that have not ended before this period, with it and what the quota includes, are an amount.
async fn fits(connection: &mut AsyncPgConnection, new: &NewGrant) -> Result<bool, LedgerError> {
    let (start, decimals) = (instant::from_ms(new.period.period_ms.0)?, new.period.decimals);
    let others: Option<Decimal> = grants::table
        .filter(grants::tenant.eq(&new.terms.tenant))
        .filter(grants::meter.eq(&new.terms.meter))
        .filter(grants::expires_at.gt(start))
        .filter(grants::settled_at.is_null())
        .filter(grants::repeats.is_null())
        .select(diesel::dsl::sum(grants::amount))
        .get_result(connection)
        .await?;
    let included = new.period.terms.included.to_amount(decimals).decimal();
    let all = others.unwrap_or_default() + included + new.terms.amount.decimal();
    let most = Units::new(UNITS_MAX).unwrap_or_default().to_amount(decimals).decimal();
    Ok(all <= most)
}

/// Wants the cuts of a grant that begins later: they are made at its instants, also if no job has booked it by then.
async fn want_ahead(
    connection: &mut AsyncPgConnection,
    partition: Partition,
    stored: &StoredGrant,
    start_ms: i64,
) -> Result<(), LedgerError> {
    for (is_end, due_at_ms) in [(false, stored.effective_at_ms), (true, stored.expires_at_ms)] {
        let due = DueCut { is_end, due_at_ms, after: OutboxId::default() };
        cuts::want(connection, partition, CutOf::grant(stored, start_ms), due).await?;
    }
    Ok(())
}

/// Books a grant into its period, and wants its cuts after the place if they are not wanted. Returns the period's start
/// (unix ms), and whether the grant goes on: it lasts longer than the period as that is now, and is not what a
/// plan includes more there.
async fn book(
    ledger: &Ledger,
    connection: &mut AsyncPgConnection,
    stored: &StoredGrant,
    period: &QuotaPeriod,
    after: OutboxId,
) -> Result<(i64, bool), LedgerError> {
    let partition = ledger.partition_of(&stored.tenant).await?;
    let opening = Opening::of(partition, &stored.tenant, &stored.meter, period);
    let opened = quotas::open_all(connection, partition, std::slice::from_ref(&opening)).await?;
    let start_ms = period.period_ms.0;
    let end: Option<DateTime<Utc>> = quota_periods::table
        .find((&stored.tenant, &stored.meter, instant::from_ms(start_ms)?))
        .select(quota_periods::period_end)
        .first(connection)
        .await
        .optional()?;
    let Some(end) = end else {
        opened.check()?;
        return Err(LedgerError::Damaged("a quota's period that was just opened is gone".into()));
    };
    let window = Window { start_ms, end_ms: end.timestamp_millis() };
    let goes_on = stored.recurrence == Recurrence::None
        && stored.expires_at_ms > window.end_ms
        && quota_changes::find(connection, &stored.tenant, stored.id).await?.is_none();
    // One that was made after its date counts from then on.
    let begins_at_ms = stored.effective_at_ms.max(stored.created_at_ms);
    let begin = DueCut { is_end: false, due_at_ms: begins_at_ms, after };
    let end = DueCut { is_end: true, due_at_ms: stored.expires_at_ms, after };
    cuts::want_once(connection, partition, CutOf::grant(stored, start_ms), begin).await?;
    if stored.expires_at_ms < window.end_ms || goes_on {
        cuts::want_once(connection, partition, CutOf::grant(stored, start_ms), end).await?;
    } else {
        cuts::end_without(connection, (&stored.tenant, stored.id)).await?;
    }
    // After the cuts, as the writer does: a batch makes those that are due before it moves balances.
    let begin = posting(stored, window, 1, stored.effective_at_ms, grant(window, stored.amount));
    journal::post_beside_outbox(connection, partition, vec![begin]).await?;
    Ok((start_ms, goes_on))
}

/// The entries say when the grant began or ended, so that the books do not depend on when they were booked.
pub(crate) fn posting(
    stored: &StoredGrant,
    period: Window,
    step: u32,
    happened_at_ms: i64,
    movements: Vec<Movement>,
) -> Posting {
    let line = PostedLine { meter: stored.meter.clone(), movements, first_leg: 0, begins_to_consume: false };
    Posting {
        tenant: stored.tenant.clone(),
        operation_id: stored.id.uuid(),
        step,
        happened_at_ms,
        operation: String::new(),
        hour_start_ms: period.start_ms,
        subjects: Vec::new(),
        lines: vec![line],
    }
}

/// Stores a grant, once.
pub(crate) async fn insert(
    connection: &mut AsyncPgConnection,
    stored: &StoredGrant,
    decimals: Decimals,
) -> Result<(), LedgerError> {
    let values = (
        grants::tenant.eq(&stored.tenant),
        grants::id.eq(stored.id.uuid()),
        grants::meter.eq(&stored.meter),
        grants::decimals.eq(i16::from(decimals.count())),
        grants::amount.eq(stored.amount.decimal()),
        grants::kind.eq(stored.kind.as_str()),
        grants::paid_amount.eq(stored.price.map(|price| price.amount.decimal())),
        grants::currency.eq(stored.price.map(|price| price.currency.code())),
        grants::priority.eq(i16::from(stored.priority.get())),
        grants::effective_at.eq(instant::from_ms(stored.effective_at_ms)?),
        grants::expires_at.eq(instant::from_ms(stored.expires_at_ms)?),
        grants::recurrence.eq(stored.recurrence.as_str()),
        grants::repeats.eq(stored.repeats.map(GrantId::uuid)),
        grants::goes_on.eq(stored.goes_on),
        grants::max_rollover.eq(stored.rollover.max.map(Amount::decimal)),
        grants::min_rollover.eq(stored.rollover.min.decimal()),
        grants::reason.eq(&stored.reason),
        grants::fingerprint.eq(&stored.fingerprint),
        grants::created_at.eq(instant::from_ms(stored.created_at_ms)?),
        grants::created_by.eq(&stored.created_by),
        grants::period_start.eq(stored.period_start_ms.map(instant::from_ms).transpose()?),
    );
    diesel::insert_into(grants::table).values(values).execute(connection).await?;
    Ok(())
}
