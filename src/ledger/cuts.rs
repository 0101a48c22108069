//! Cuts: where grants begin and end in the consumption of their quota, and what is booked when they have ended.
//!
//! A cut is made before the first event at or after its instant is booked, whenever that is.

mod settle;
mod unburnt;

use diesel::prelude::*;
use diesel::sql_types::{BigInt, Bool, SmallInt, Text, Timestamptz, Uuid};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use futures::FutureExt;
use serde_json::json;

use super::grant_sales::{self, BurntGrant};
use super::grants::{self as stored_grants, StoredGrant};
use super::prepared::sql_query;
use super::schema::{cuts, due_cuts, grants};
use super::{
    BEGIN_BOOKING, Ledger, LedgerError, audit, capacities, instant, number, open_periods, quota_changes,
    recurring,
};
use crate::domain::grant::{GrantId, Recurrence};
use crate::domain::ids::{MeterId, OutboxId, Partition, TenantId};
use crate::domain::period::{Window, WindowKind};

pub(super) use self::unburnt::{EndOf, unburnt};

/// From when on (unix ms) a voided grant's end is due: at any time.
const AT_VOID_MS: i64 = 0;

/// A cut that is wanted.
pub(crate) struct DueCut {
    /// Whether the grant ends there.
    pub(crate) is_end: bool,
    /// Before the first event from this instant on (unix ms),
    pub(crate) due_at_ms: i64,
    /// and after this place.
    pub(crate) after: OutboxId,
}

/// What is cut: a grant, or a quota that is lowered, in the period that starts at `start_ms`.
pub(crate) struct CutOf<'a> {
    pub(crate) tenant: &'a TenantId,
    pub(crate) id: GrantId,
    pub(crate) meter: &'a MeterId,
    pub(crate) start_ms: i64,
}

impl<'a> CutOf<'a> {
    /// A grant that is booked in this period.
    pub(crate) fn grant(stored: &'a StoredGrant, start_ms: i64) -> Self {
        Self { tenant: &stored.tenant, id: stored.id, meter: &stored.meter, start_ms }
    }
}

/// Wants a cut; the last wish counts.
pub(crate) async fn want(
    connection: &mut AsyncPgConnection,
    partition: Partition,
    of: CutOf<'_>,
    due: DueCut,
) -> Result<(), LedgerError> {
    let due_at = instant::from_ms(due.due_at_ms)?;
    let (epoch, sequence) = (number::signed(due.after.epoch.0), number::signed(due.after.sequence));
    let place = (
        due_cuts::period_start.eq(instant::from_ms(of.start_ms)?),
        due_cuts::due_at.eq(due_at),
        due_cuts::epoch.eq(epoch),
        due_cuts::sequence.eq(sequence),
    );
    let values = (
        due_cuts::partition.eq(partition),
        due_cuts::tenant.eq(of.tenant),
        due_cuts::grant_id.eq(of.id.uuid()),
        due_cuts::is_end.eq(due.is_end),
        due_cuts::meter.eq(of.meter),
        place,
    );
    diesel::insert_into(due_cuts::table)
        .values(values)
        .on_conflict((due_cuts::tenant, due_cuts::grant_id, due_cuts::is_end))
        .do_update()
        .set(place)
        .execute(connection)
        .await?;
    Ok(())
}

/// Wants the cut of a grant that is booked now, in its period, unless it is wanted or made already: a grant that was
/// made ahead is cut where it begins and ends, however late it is booked.
pub(crate) async fn want_once(
    connection: &mut AsyncPgConnection,
    partition: Partition,
    of: CutOf<'_>,
    due: DueCut,
) -> Result<(), LedgerError> {
    let key = (of.tenant, of.id.uuid(), due.is_end);
    let start = instant::from_ms(of.start_ms)?;
    let moved = diesel::update(due_cuts::table.find(key)).set(due_cuts::period_start.eq(start));
    // The transaction that makes a cut drops its wish.
    if moved.execute(connection).await? > 0 {
        return Ok(());
    }
    let made = cuts::table.find(key).select(cuts::is_end).first::<bool>(connection).await.optional()?;
    if made.is_some() { Ok(()) } else { want(connection, partition, of, due).await }
}

/// Wants a cut of a grant no more.
pub(crate) async fn want_no_more(
    connection: &mut AsyncPgConnection,
    (tenant, id): (&TenantId, GrantId),
    is_end: bool,
) -> Result<(), LedgerError> {
    diesel::delete(due_cuts::table.find((tenant, id.uuid(), is_end))).execute(connection).await?;
    Ok(())
}

/// Leaves a grant's end to the close of its period, or to nobody where it never begins: a cut settles nothing.
pub(crate) async fn end_without(
    connection: &mut AsyncPgConnection,
    of: (&TenantId, GrantId),
) -> Result<(), LedgerError> {
    want_no_more(connection, of, true).await?;
    let made = cuts::table.find((of.0, of.1.uuid(), true));
    diesel::update(made).set(cuts::is_settled.eq(true)).execute(connection).await?;
    Ok(())
}

/// Wants an end cut after `after`, where the gate had the strict bound. The first wish stays: were it moved while the
/// writer is behind, each event would be before it.
pub(crate) async fn want_end_once(
    connection: &mut AsyncPgConnection,
    partition: Partition,
    of: CutOf<'_>,
    after: OutboxId,
) -> Result<(), LedgerError> {
    let made = cuts::table.find((of.tenant, of.id.uuid(), true));
    if made.select(cuts::is_end).first::<bool>(connection).await.optional()?.is_some() {
        return Ok(());
    }
    let wished = due_cuts::table.find((of.tenant, of.id.uuid(), true));
    let wished = wished.filter(due_cuts::due_at.eq(instant::from_ms(AT_VOID_MS)?));
    if wished.select(due_cuts::is_end).first::<bool>(connection).await.optional()?.is_some() {
        return Ok(());
    }
    want(connection, partition, of, DueCut { is_end: true, due_at_ms: AT_VOID_MS, after }).await
}

/// Makes the cuts that are due before an event, by its place and gate time: everything before it is booked, and neither
/// it nor anything after it.
pub(crate) async fn make(
    connection: &mut AsyncPgConnection,
    partition: Partition,
    place: OutboxId,
    gate_time_ms: i64,
) -> Result<(), LedgerError> {
    sql_query(include_str!("sql/make_cuts.sql"))
        .bind::<SmallInt, _>(number::of_partition(partition))
        .bind::<Timestamptz, _>(instant::from_ms(gate_time_ms)?)
        .bind::<BigInt, _>(number::signed(place.epoch.0))
        .bind::<BigInt, _>(number::signed(place.sequence))
        .execute(connection)
        .await?;
    Ok(())
}

/// What became of a call to void a grant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Voided {
    /// It had not begun, and never will.
    Cancelled(StoredGrant),
    /// It ends as soon as the gate has the strict bound.
    Ending(StoredGrant),
    /// It was voided before.
    Before(StoredGrant),
    /// It ended by itself.
    Expired(StoredGrant),
    /// It stays: it is what a plan includes more, and another change of plan begins from it.
    OfPlan(StoredGrant),
    /// There is no such grant.
    Missing,
}

impl Ledger {
    /// Asks for a grant's end at `now_ms`. From now on the gate gets the capacity without it, as a bound.
    pub async fn void_grant(&self, id: GrantId, now_ms: i64, actor: &str) -> Result<Voided, LedgerError> {
        let actor = actor.to_owned();
        self.ensure_months_of([now_ms].into_iter()).await?;
        self.transact(BEGIN_BOOKING, move |connection| {
            async move {
                let Some(found) = stored_grants::find(connection, id).await? else {
                    return Ok(Voided::Missing);
                };
                capacities::lock_tenant(connection, &found.tenant).await?;
                let Some(found) = stored_grants::find(connection, id).await? else {
                    return Ok(Voided::Missing);
                };
                if found.recurrence == Recurrence::Period {
                    return recurring::void(connection, found, now_ms, &actor).await;
                }
                if found.voided_at_ms.is_some() {
                    return Ok(Voided::Before(found));
                }
                if found.settled_at_ms.is_some() || found.expires_at_ms <= now_ms {
                    return Ok(Voided::Expired(found));
                }
                if quota_changes::find(connection, &found.tenant, id).await?.is_some() {
                    return Ok(Voided::OfPlan(found));
                }
                let begun = found.period_start_ms.is_some();
                let now = instant::from_ms(now_ms)?;
                let settled = (!begun).then_some(now);
                diesel::update(grants::table.find((&found.tenant, id.uuid())))
                    .set((grants::voided_at.eq(Some(now)), grants::settled_at.eq(settled)))
                    .execute(connection)
                    .await?;
                if !begun {
                    let cancelled = BurntGrant::unbegun(&found, now_ms, true);
                    grant_sales::end_one(connection, cancelled).await?;
                }
                // The cut at the date of one that goes on is of another period: it must not stand for the one that the
                // void asks for. All others end at their dates even if nobody carries the void on before.
                if !begun || found.goes_on {
                    want_no_more(connection, (&found.tenant, id), true).await?;
                }
                if !begun {
                    want_no_more(connection, (&found.tenant, id), false).await?;
                }
                capacities::raise_versions(connection, &found.tenant, &found.meter, now_ms).await?;
                let detail = json!({ "tenant": found.tenant, "meter": found.meter });
                audit::note(connection, &actor, "void", &format!("grant {id}"), detail).await?;
                let voided = StoredGrant {
                    voided_at_ms: Some(now_ms),
                    settled_at_ms: settled.map(|_| now_ms),
                    ..found
                };
                Ok(if begun { Voided::Ending(voided) } else { Voided::Cancelled(voided) })
            }
            .boxed()
        })
        .await
    }

    /// Ends a grant that was never booked, because its tenant had no such quota any more: as of its date or of the end
    /// of the period in which it was to begin. That period does not wait for it then. What was paid for it is earned in
    /// the period around its end, `ended_in`: the one in which it was sold may be billed.
    pub async fn forgo_grant(
        &self,
        stored: StoredGrant,
        ended_in: Option<Window>,
        ended_at_ms: i64,
        now_ms: i64,
    ) -> Result<(), LedgerError> {
        self.ensure_months_of([ended_at_ms].into_iter()).await?;
        self.transact(BEGIN_BOOKING, move |connection| {
            async move {
                capacities::lock_tenant(connection, &stored.tenant).await?;
                let unbooked = grants::period_start.is_null().and(grants::settled_at.is_null());
                let ended_at = instant::from_ms(ended_at_ms)?;
                let forgone =
                    diesel::update(grants::table.find((&stored.tenant, stored.id.uuid())).filter(unbooked))
                        .set(grants::settled_at.eq(Some(ended_at)))
                        .execute(connection)
                        .await?;
                if forgone > 0 {
                    let ended =
                        BurntGrant { period: ended_in, ..BurntGrant::unbegun(&stored, ended_at_ms, false) };
                    grant_sales::end_one(connection, ended).await?;
                    want_no_more(connection, (&stored.tenant, stored.id), false).await?;
                    end_without(connection, (&stored.tenant, stored.id)).await?;
                }
                capacities::raise_versions(connection, &stored.tenant, &stored.meter, now_ms).await
            }
            .boxed()
        })
        .await
    }

    /// Wants the end cut of a voided grant after `after`: the gate had the strict bound there.
    pub async fn want_end(&self, stored: StoredGrant, after: OutboxId) -> Result<(), LedgerError> {
        let Some(begun_ms) = stored.period_start_ms else { return Ok(()) };
        let partition = self.partition_of(&stored.tenant).await?;
        self.transact(BEGIN_BOOKING, move |connection| {
            async move {
                capacities::lock_tenant(connection, &stored.tenant).await?;
                let stands = stored_grants::find(connection, stored.id).await?;
                // A close has ended it meanwhile.
                if stands.is_none_or(|stands| stands.settled_at_ms.is_some()) {
                    return Ok(());
                }
                let start_ms = voided_in(connection, &stored).await?.unwrap_or(begun_ms);
                want_end_once(connection, partition, CutOf::grant(&stored, start_ms), after).await
            }
            .boxed()
        })
        .await
    }

    /// Voided grants without a cut, nor a wish for one at their void, of one tenant or of all, by id: those after this
    /// one.
    pub async fn voided_grants(
        &self,
        tenant: Option<&TenantId>,
        after: Option<GrantId>,
        limit: usize,
    ) -> Result<Vec<StoredGrant>, LedgerError> {
        let at_void = instant::from_ms(AT_VOID_MS)?;
        let query = || {
            let wish = due_cuts::table
                .filter(due_cuts::tenant.eq(grants::tenant))
                .filter(due_cuts::grant_id.eq(grants::id))
                .filter(due_cuts::is_end.and(due_cuts::due_at.eq(at_void)));
            let cut = cuts::table
                .filter(cuts::tenant.eq(grants::tenant))
                .filter(cuts::grant_id.eq(grants::id))
                .filter(cuts::is_end);
            let mut found = grants::table
                .filter(grants::voided_at.is_not_null())
                .filter(grants::settled_at.is_null())
                .filter(diesel::dsl::not(diesel::dsl::exists(cut)))
                .filter(diesel::dsl::not(diesel::dsl::exists(wish)))
                .into_boxed();
            if let Some(tenant) = tenant {
                found = found.filter(grants::tenant.eq(tenant));
            }
            if let Some(after) = after {
                found = found.filter(grants::id.gt(after.uuid()));
            }
            found.order(grants::id).limit(number::limit(limit)).select(stored_grants::Row::as_select())
        };
        self.load(query).await?.into_iter().map(stored_grants::Row::read).collect()
    }
}

/// The start (unix ms) of the period in which a grant is voided that goes on, whether it is open in the books or not;
/// none where it cannot go on.
async fn voided_in(
    connection: &mut AsyncPgConnection,
    stored: &StoredGrant,
) -> Result<Option<i64>, LedgerError> {
    let Some(voided_at_ms) = stored.voided_at_ms.filter(|_| stored.goes_on) else { return Ok(None) };
    let calendars = open_periods::calendars(connection, std::iter::once(&stored.tenant)).await?;
    let calendars = calendars
        .get(&stored.tenant)
        .ok_or_else(|| LedgerError::Damaged(format!("the calendar of {}", stored.tenant)))?;
    Ok(Some(calendars.window(WindowKind::Period, voided_at_ms).start_ms))
}

#[derive(QueryableByName)]
struct GoesOn {
    #[diesel(sql_type = Bool)]
    may_go_on: bool,
}

/// Whether the close of the period before may still change what has burnt of the one that starts at `start_ms`.
pub(crate) async fn period_before_may_go_on(
    connection: &mut AsyncPgConnection,
    tenant: &TenantId,
    meter: &MeterId,
    start_ms: i64,
) -> Result<bool, LedgerError> {
    let find = sql_query(include_str!("sql/period_before_may_go_on.sql"))
        .bind::<Text, _>(tenant)
        .bind::<Text, _>(meter)
        .bind::<Timestamptz, _>(instant::from_ms(start_ms)?);
    let found: GoesOn = find.get_result(connection).await?;
    Ok(found.may_go_on)
}

#[derive(QueryableByName)]
struct Returned {
    #[diesel(sql_type = Bool)]
    has_returned: bool,
}

/// Whether something returned of carried holds before the end cut of this grant or change, and is not booked: since it
/// was looked for, the close of the period before may have ended what it waited for.
pub(crate) async fn returned_before(
    connection: &mut AsyncPgConnection,
    tenant: &TenantId,
    id: GrantId,
) -> Result<bool, LedgerError> {
    let find = sql_query(include_str!("sql/returned_before_cut.sql"))
        .bind::<Text, _>(tenant)
        .bind::<Uuid, _>(id.uuid());
    let found: Returned = find.get_result(connection).await?;
    Ok(found.has_returned)
}
