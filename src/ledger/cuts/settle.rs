//! Books what is unburnt of grants that have ended: of all that end at one cut of a quota together, since one fold says
//! it of all.

use std::collections::BTreeMap;

use diesel::QueryableByName;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Text, Timestamptz, Uuid};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use futures::FutureExt;
use rust_decimal::Decimal;

use super::unburnt::{EndOf, burnt_at_ends_of, end_cut, left_of};
use super::{period_before_may_go_on, returned_before};
use crate::domain::amount::Amount;
use crate::domain::burn::BurnPlace;
use crate::domain::entry::Posting;
use crate::domain::grant::GrantId;
use crate::domain::ids::{OutboxId, Partition, TenantId};
use crate::ledger::burnables::Unwound;
use crate::ledger::columns::Milliseconds;
use crate::ledger::continued_grants::{self, Standing};
use crate::ledger::grant_sales::{self, BurntGrant};
use crate::ledger::grants::{self as stored_grants, StoredGrant};
use crate::ledger::prepared::sql_query;
use crate::ledger::schema::{cuts, grants, unwindings};
use crate::ledger::{
    BEGIN_BOOKING, Ledger, LedgerError, advances, capacities, instant, journal, number, quota_changes,
};

/// How many grants are booked in one transaction.
const AT_ONCE: usize = 200;

#[derive(QueryableByName)]
struct EndedWith {
    #[diesel(sql_type = Uuid)]
    id: uuid::Uuid,
    #[diesel(sql_type = Timestamptz)]
    ended_at: Milliseconds,
}

impl Ledger {
    /// Books what is unburnt of a grant as of its end cut, and of others that end there: it lapses, or is voided.
    /// Raises the capacity's version. What returned of carried holds is booked first: it may be a part of the grant.
    /// Returns of how many it was not booked before.
    pub async fn settle_grant(&self, tenant: TenantId, id: GrantId, now_ms: i64) -> Result<u64, LedgerError> {
        let Some(found) = self.grant(id).await? else { return Ok(0) };
        let of = &tenant;
        let query = || {
            sql_query(include_str!("../sql/ended_with.sql"))
                .bind::<Text, _>(of)
                .bind::<Uuid, _>(id.uuid())
                .bind::<BigInt, _>(number::limit(AT_ONCE))
        };
        let ended: Vec<EndedWith> = self.load(query).await?;
        self.ensure_months_of(ended.iter().map(|one| one.ended_at.0)).await?;
        let partition = self.partition_of(&tenant).await?;
        self.book_returns_of(partition, &tenant, &found.meter, now_ms).await?;
        let ids: Vec<GrantId> = ended.iter().map(|one| GrantId::from_uuid(one.id)).collect();
        let is_alone = ids.len() <= 1;
        match self.settle_together(partition, tenant.clone(), ids, now_ms).await {
            // What is damaged of another one holds up that one.
            Err(LedgerError::Damaged(_) | LedgerError::Refused(_) | LedgerError::Database(_))
                if !is_alone =>
            {
                self.settle_together(partition, tenant, vec![id], now_ms).await
            }
            settled => settled,
        }
    }

    async fn settle_together(
        &self,
        partition: Partition,
        tenant: TenantId,
        ids: Vec<GrantId>,
        now_ms: i64,
    ) -> Result<u64, LedgerError> {
        self.transact(BEGIN_BOOKING, move |connection| {
            async move { settle(connection, partition, &tenant, &ids, now_ms).await }.boxed()
        })
        .await
    }
}

/// A grant that has ended in the period in which it stands, and of which what is unburnt is not booked.
struct Ended {
    stored: StoredGrant,
    standing: Standing,
}

impl Ended {
    async fn find(connection: &mut AsyncPgConnection, id: GrantId) -> Result<Option<Self>, LedgerError> {
        let Some(stored) = stored_grants::find(connection, id).await? else { return Ok(None) };
        let (Some(begun_ms), None) = (stored.period_start_ms, stored.settled_at_ms) else { return Ok(None) };
        let standing = continued_grants::standing(connection, &stored, begun_ms).await?;
        let ended = Self { stored, standing };
        // The close of this period brings it to the one in which it ends.
        let is_later = ended.stored.goes_on && ended.ended_at_ms() >= standing.period.end_ms;
        Ok(Some(ended).filter(|_| !is_later))
    }

    fn ended_at_ms(&self) -> i64 {
        self.stored.voided_at_ms.unwrap_or(self.stored.expires_at_ms)
    }

    /// Whether something comes before its end that is not booked.
    async fn waits(&self, connection: &mut AsyncPgConnection, place: OutboxId) -> Result<bool, LedgerError> {
        let Self { stored, standing } = self;
        let start_ms = standing.period.start_ms;
        // What the close of the period before brings burns as of this period's start: it has to be known first. What is
        // taken back later is booked after it.
        Ok(period_before_may_go_on(connection, &stored.tenant, &stored.meter, start_ms).await?
            || quota_changes::is_under_way(connection, stored, start_ms).await?
            || returned_before(connection, &stored.tenant, stored.id).await?
            || is_unwound_before(connection, stored, start_ms, place).await?)
    }

    fn lapse(&self, unburnt: Amount) -> Posting {
        let (end, window) = (EndOf::of(&self.stored), self.standing.period);
        let step = if end.is_void { 2 } else { 3 };
        let movements = end.movements(window, unburnt);
        stored_grants::posting(&self.stored, window, step, end.at_ms, movements)
    }

    fn burnt(&self, unburnt: Amount) -> BurntGrant {
        let end = EndOf::of(&self.stored);
        BurntGrant {
            tenant: self.stored.tenant.clone(),
            id: self.stored.id,
            period: Some(self.standing.period),
            burnt: self.stored.amount.saturating_sub(unburnt),
            at_ms: end.at_ms,
            left: end.left,
        }
    }

    async fn note(&self, connection: &mut AsyncPgConnection, unburnt: Amount) -> Result<(), LedgerError> {
        let (tenant, id) = (&self.stored.tenant, self.stored.id);
        let ended_at = instant::from_ms(self.ended_at_ms())?;
        diesel::update(grants::table.find((tenant, id.uuid())))
            .set((grants::settled_at.eq(Some(ended_at)), grants::settled_amount.eq(Some(unburnt.decimal()))))
            .execute(connection)
            .await?;
        diesel::update(cuts::table.find((tenant, id.uuid(), true)))
            .set(cuts::is_settled.eq(true))
            .execute(connection)
            .await?;
        advances::end_of(connection, tenant, &self.stored.meter, id).await
    }
}

/// Settles the first of these grants, and those of the others that end at the same cut of the same period.
async fn settle(
    connection: &mut AsyncPgConnection,
    partition: Partition,
    tenant: &TenantId,
    ids: &[GrantId],
    now_ms: i64,
) -> Result<u64, LedgerError> {
    capacities::lock_tenant(connection, tenant).await?;
    let Some((first, others)) = ids.split_first() else { return Ok(0) };
    let Some(first) = Ended::find(connection, *first).await? else { return Ok(0) };
    let Some(place) = end_cut(connection, &first.stored).await? else { return Ok(0) };
    if first.waits(connection, place).await? {
        return Ok(0);
    }
    let unwound = Unwound::Before(place);
    let burnt = burnt_at_ends_of(connection, &first.stored, &first.standing, unwound).await?;
    let (meter, period) = (first.stored.meter.clone(), first.standing.period);
    let mut ended = vec![first];
    for id in others {
        let Some(other) = Ended::find(connection, *id).await? else { continue };
        let is_of_it = other.stored.meter == meter && other.standing.period == period;
        if is_of_it && end_cut(connection, &other.stored).await? == Some(place) {
            ended.push(other);
        }
    }
    let settled = all_left(ended, &burnt)?;
    if settled.is_empty() {
        return Ok(0);
    }
    let lapses = settled.iter().map(|(ended, unburnt)| ended.lapse(*unburnt)).collect();
    journal::post_beside_outbox(connection, partition, lapses).await?;
    let burnt: Vec<_> = settled.iter().map(|(ended, unburnt)| ended.burnt(*unburnt)).collect();
    grant_sales::burn(connection, partition, &burnt).await?;
    for (ended, unburnt) in &settled {
        ended.note(connection, *unburnt).await?;
    }
    capacities::raise_versions(connection, tenant, &meter, now_ms).await?;
    Ok(u64::try_from(settled.len()).unwrap_or(u64::MAX))
}

/// What is left of each; without those that have no end among the cuts.
fn all_left(
    ended: Vec<Ended>,
    burnt: &BTreeMap<BurnPlace, Decimal>,
) -> Result<Vec<(Ended, Amount)>, LedgerError> {
    let left = |ended: Ended| {
        let left = left_of(&ended.stored, &ended.standing, burnt).transpose()?;
        Some(left.map(|left| (ended, left)))
    };
    ended.into_iter().filter_map(left).collect()
}

/// Whether use of the quota was taken back before this place, and what follows is not booked: it comes first.
async fn is_unwound_before(
    connection: &mut AsyncPgConnection,
    stored: &StoredGrant,
    start_ms: i64,
    place: OutboxId,
) -> Result<bool, LedgerError> {
    let (epoch, sequence) = (number::signed(place.epoch.0), number::signed(place.sequence));
    let same = unwindings::epoch.eq(epoch).and(unwindings::sequence.lt(sequence));
    let before = unwindings::table
        .filter(unwindings::tenant.eq(&stored.tenant))
        .filter(unwindings::meter.eq(&stored.meter))
        .filter(unwindings::period_start.eq(instant::from_ms(start_ms)?))
        .filter(unwindings::is_settled.eq(false))
        .filter(unwindings::epoch.lt(epoch).or(same));
    Ok(diesel::select(diesel::dsl::exists(before)).get_result(connection).await?)
}
