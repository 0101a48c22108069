//! Sketches of what finished work used, learned from resolved reservations.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, Utc};
use diesel::dsl::max;
use diesel::prelude::*;
use diesel::sql_types::{Array, BigInt, Binary, Bool, Nullable, Text, Timestamptz};
use diesel::upsert::excluded;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use futures::FutureExt;

use super::functions::clock_timestamp;
use super::prepared::sql_query;
use super::schema::{estimate_marks, usage_estimates};
use super::{BEGIN, Ledger, LedgerError, notices, number};
use crate::domain::amount::Units;
use crate::domain::estimate::{Estimated, Latest, REMEMBERED, REMEMBERED_OF_ALL, Sketch};
use crate::domain::ids::{MeterId, OperationId, OutboxId, TenantId};
use crate::domain::reservation::{LineRule, LineUnits, Record};

/// The kind of notice that new sketches are announced by.
pub const NOTICE: &str = "estimates";
/// The tenant in the rows of the sketches of all tenants, and in the row that a run locks.
const ALL_TENANTS: &str = "";
/// How many tenants one query looks at.
const TENANTS_PAGE: usize = 500;
/// From how many of them one transaction learns.
const TENANTS_CHUNK: usize = 10;
/// How many sketches are read at once.
const ROWS_PAGE: i64 = 5_000;

/// A cost that is learned: an operation's, on a meter.
pub type LearnedCost = (OperationId, MeterId);

/// What is learned of a cost.
#[derive(Debug, Clone)]
pub struct LearnedUse {
    /// Whose work; none for that of all tenants.
    pub tenant: Option<TenantId>,
    /// Of which cost.
    pub cost: LearnedCost,
    /// How often work used how much.
    pub sketch: Sketch,
    /// The latest work whose holds were estimates; empty for all tenants.
    pub latest: Latest,
}

/// A place among the stored sketches: tenant, operation and meter.
pub type LearnedPlace = (String, String, String);

#[derive(QueryableByName)]
struct TenantRow {
    #[diesel(sql_type = Text)]
    tenant: String,
    #[diesel(sql_type = Bool)]
    is_due: bool,
}

#[derive(QueryableByName)]
struct WorkRow {
    #[diesel(sql_type = Text)]
    tenant: String,
    #[diesel(sql_type = Timestamptz)]
    resolved_at: DateTime<Utc>,
    #[diesel(embed)]
    event: OutboxId,
    #[diesel(sql_type = Bool)]
    is_new: bool,
    #[diesel(sql_type = Nullable<Binary>)]
    record: Option<Vec<u8>>,
}

#[derive(Queryable, Selectable, Insertable)]
#[diesel(table_name = usage_estimates, check_for_backend(diesel::pg::Pg))]
struct Row {
    tenant: String,
    operation: OperationId,
    meter: MeterId,
    buckets: Vec<Option<i16>>,
    counts: Vec<Option<i32>>,
    held: Vec<Option<i64>>,
    used: Vec<Option<i64>>,
}

impl Row {
    fn of(tenant: &str, (operation, meter): &LearnedCost, learned: &Learned) -> Self {
        let counts = learned.sketch.counts().iter();
        let number = |count: u32| Some(i32::try_from(count).unwrap_or(i32::MAX));
        let (buckets, counts) =
            counts.map(|(bucket, count)| (i16::try_from(*bucket).ok(), number(*count))).unzip();
        let latest = learned.latest.iter();
        let (held, used) = latest.map(|work| (Some(work.held.get()), Some(work.used.get()))).unzip();
        let (operation, meter) = (operation.clone(), meter.clone());
        Self { tenant: tenant.to_owned(), operation, meter, buckets, counts, held, used }
    }

    /// A row that makes no sense is learned from the beginning.
    fn read(self) -> (String, LearnedCost, Learned) {
        let pairs = self.buckets.into_iter().zip(self.counts);
        let pair = |(bucket, count): (Option<i16>, Option<i32>)| {
            Some((u16::try_from(bucket?).ok()?, u32::try_from(count?).ok()?))
        };
        let counts: Option<Vec<_>> = pairs.map(pair).collect();
        let work = |(held, used): (Option<i64>, Option<i64>)| {
            Some(Estimated { held: Units::new(held?)?, used: Units::new(used?)? })
        };
        let latest = self.held.into_iter().zip(self.used).filter_map(work);
        let learned = Learned {
            sketch: counts.and_then(Sketch::of).unwrap_or_default(),
            latest: Latest::of(latest),
            is_changed: false,
        };
        (self.tenant, (self.operation, self.meter), learned)
    }
}

#[derive(Default)]
struct Learned {
    sketch: Sketch,
    latest: Latest,
    is_changed: bool,
}

/// Sketches by tenant and cost, while they are learned.
type Sketches = BTreeMap<(String, LearnedCost), Learned>;

/// Up to where a tenant's work is learned.
type Marks = BTreeMap<String, (DateTime<Utc>, OutboxId)>;

impl Ledger {
    /// Learns these costs from the work that was resolved since the last time, and those that are new from what there
    /// is: at most the `latest` work of each tenant. Returns how many pieces of work were counted. A run may end
    /// anywhere, and no work is counted twice.
    pub async fn learn_estimates(&self, costs: &[LearnedCost], latest: usize) -> Result<u64, LedgerError> {
        if costs.is_empty() {
            return Ok(0);
        }
        let (mut counted, mut after) = (0, String::new());
        loop {
            let page = self.tenants_to_learn_from(&after, costs).await?;
            let due: Vec<_> = page.iter().filter(|row| row.is_due).map(|row| row.tenant.clone()).collect();
            for chunk in due.chunks(TENANTS_CHUNK) {
                let (tenants, costs) = (chunk.to_vec(), costs.to_vec());
                let learn = self.transact(BEGIN, move |connection| {
                    async move { learn_from(connection, tenants, costs, latest).await }.boxed()
                });
                counted += learn.await?;
            }
            match page.into_iter().next_back() {
                Some(last) => after = last.tenant,
                None => break,
            }
        }
        // Once at the end: every instance then reads all that is learned.
        if counted > 0 {
            self.transact(BEGIN, |connection| notices::tell(connection, NOTICE, "", 0).boxed()).await?;
        }
        Ok(counted)
    }

    async fn tenants_to_learn_from(
        &self,
        after: &str,
        costs: &[LearnedCost],
    ) -> Result<Vec<TenantRow>, LedgerError> {
        self.load(|| {
            sql_query(include_str!("sql/tenants_to_learn_from.sql"))
                .bind::<Text, _>(after)
                .bind::<Array<Text>, _>(names(costs))
                .bind::<BigInt, _>(number::limit(TENANTS_PAGE))
        })
        .await
    }

    /// When a sketch was written last (the database's clock, unix microseconds); none where there are none.
    pub async fn estimates_learned_at(&self) -> Result<Option<i64>, LedgerError> {
        let query = || usage_estimates::table.select(max(usage_estimates::learned_at));
        let latest: Option<Option<DateTime<Utc>>> = self.first(query).await?;
        Ok(latest.flatten().map(|at| at.timestamp_micros()))
    }

    /// What is learned, a page at a time, in the order of tenants, costs and meters, with the place of the next page if
    /// there is one.
    pub async fn learned_estimates(
        &self,
        after: Option<LearnedPlace>,
    ) -> Result<(Vec<LearnedUse>, Option<LearnedPlace>), LedgerError> {
        use usage_estimates::{meter, operation, tenant};
        let query = || {
            let mut found = usage_estimates::table.select(Row::as_select()).into_boxed();
            if let Some((of_tenant, of_operation, of_meter)) = &after {
                let later = operation.gt(of_operation).or(operation.eq(of_operation).and(meter.gt(of_meter)));
                found = found.filter(tenant.ge(of_tenant)).filter(tenant.gt(of_tenant).or(later));
            }
            found.order((tenant, operation, meter)).limit(ROWS_PAGE)
        };
        let rows: Vec<Row> = self.load(query).await?;
        let is_full = number::limit(rows.len()) == ROWS_PAGE;
        let next = rows.last().filter(|_| is_full).map(|row| {
            (row.tenant.clone(), row.operation.as_str().to_owned(), row.meter.as_str().to_owned())
        });
        let read = |row: Row| {
            let (of_tenant, cost, learned) = row.read();
            let of_tenant = if of_tenant == ALL_TENANTS { None } else { Some(number::tenant(&of_tenant)?) };
            Ok(LearnedUse { tenant: of_tenant, cost, sketch: learned.sketch, latest: learned.latest })
        };
        Ok((rows.into_iter().map(read).collect::<Result<_, LedgerError>>()?, next))
    }
}

fn names(costs: &[LearnedCost]) -> Vec<String> {
    costs.iter().map(|(operation, meter)| format!("{operation}/{meter}")).collect()
}

/// Learns these costs from these tenants' work. Returns how many pieces of work were counted.
async fn learn_from(
    connection: &mut AsyncPgConnection,
    tenants: Vec<String>,
    costs: Vec<LearnedCost>,
    latest: usize,
) -> Result<u64, LedgerError> {
    let known = lock_marks(connection, &tenants).await?;
    let operations: BTreeSet<&str> = costs.iter().map(|(operation, _)| operation.as_str()).collect();
    let operations: Vec<&str> = operations.into_iter().collect();
    let work: Vec<WorkRow> = sql_query(include_str!("sql/work_to_learn_from.sql"))
        .bind::<Array<Text>, _>(&tenants)
        .bind::<Array<Text>, _>(names(&costs))
        .bind::<Array<Text>, _>(&operations)
        .bind::<BigInt, _>(number::limit(latest))
        .load(connection)
        .await?;
    let mut sketches = read_sketches(connection, &tenants, &operations).await?;
    let (mut counted, mut marks) = (0, Marks::new());
    for row in work {
        let learned_before = known.get(&row.tenant);
        let is_learned = |cost: &LearnedCost| {
            let name = format!("{}/{}", cost.0, cost.1);
            row.is_new || learned_before.is_none_or(|learned| !learned.contains(&name))
        };
        if let Some(record) = row.record.as_deref() {
            counted += u64::from(count(&mut sketches, &row.tenant, record, &costs, is_learned));
        }
        if row.is_new {
            let mark = marks.entry(row.tenant).or_insert((row.resolved_at, row.event));
            *mark = (mark.0.max(row.resolved_at), row.event);
        }
    }
    write_sketches(connection, &sketches).await?;
    move_marks(connection, &tenants, &names(&costs), &marks).await?;
    Ok(counted)
}

/// Counts a piece of work in its tenant's sketches and those of all. Returns whether it is of any of these costs.
fn count(
    sketches: &mut Sketches,
    tenant: &str,
    record: &[u8],
    costs: &[LearnedCost],
    is_learned: impl Fn(&LearnedCost) -> bool,
) -> bool {
    // A damaged record is reported by who needs it whole.
    let Ok(Record { head, units, body, .. }) = Record::decode(record) else { return false };
    // What finance corrects is no job of its own.
    if head.correction.is_some() {
        return false;
    }
    let Some(operation) = body.rest.and_then(|rest| rest.operation) else { return false };
    let mut is_counted = false;
    for (LineRule { meter, estimated, booked, .. }, line) in body.lines.into_iter().zip(units) {
        let cost = (operation.clone(), meter);
        if !booked || !costs.contains(&cost) || !is_learned(&cost) {
            continue;
        }
        is_counted = true;
        let LineUnits { held, consumed, uncharged } = line;
        let used = consumed.checked_add(uncharged).unwrap_or(Units::MAX);
        let all = sketches.entry((ALL_TENANTS.to_owned(), cost.clone())).or_default();
        all.sketch.add(used, REMEMBERED_OF_ALL);
        all.is_changed = true;
        let own = sketches.entry((tenant.to_owned(), cost)).or_default();
        own.sketch.add(used, REMEMBERED);
        own.is_changed = true;
        if estimated && held > Units::ZERO {
            own.latest.add(Estimated { held, used });
        }
    }
    is_counted
}

/// Locks the marks of these tenants, also against any other run. Returns which costs each has learned.
async fn lock_marks(
    connection: &mut AsyncPgConnection,
    tenants: &[String],
) -> Result<BTreeMap<String, Vec<String>>, LedgerError> {
    let all: Vec<&str> = std::iter::once(ALL_TENANTS).chain(tenants.iter().map(String::as_str)).collect();
    let rows: Vec<_> = all.iter().map(|tenant| estimate_marks::tenant.eq(*tenant)).collect();
    diesel::insert_into(estimate_marks::table)
        .values(rows)
        .on_conflict_do_nothing()
        .execute(connection)
        .await?;
    let marks: Vec<(String, Vec<Option<String>>)> = estimate_marks::table
        .select((estimate_marks::tenant, estimate_marks::learned))
        .filter(estimate_marks::tenant.eq_any(all))
        .order(estimate_marks::tenant)
        .for_update()
        .load(connection)
        .await?;
    Ok(marks.into_iter().map(|(tenant, learned)| (tenant, learned.into_iter().flatten().collect())).collect())
}

async fn read_sketches(
    connection: &mut AsyncPgConnection,
    tenants: &[String],
    operations: &[&str],
) -> Result<Sketches, LedgerError> {
    let all = tenants.iter().map(String::as_str).chain([ALL_TENANTS]);
    let rows: Vec<Row> = usage_estimates::table
        .select(Row::as_select())
        .filter(usage_estimates::tenant.eq_any(all))
        .filter(usage_estimates::operation.eq_any(operations.to_vec()))
        .load(connection)
        .await?;
    let read = |row: Row| {
        let (tenant, cost, learned) = row.read();
        ((tenant, cost), learned)
    };
    Ok(rows.into_iter().map(read).collect())
}

async fn write_sketches(connection: &mut AsyncPgConnection, sketches: &Sketches) -> Result<(), LedgerError> {
    use usage_estimates::{buckets, counts, held, learned_at, meter, operation, tenant, used};
    let changed = sketches.iter().filter(|(_, learned)| learned.is_changed);
    let rows: Vec<_> = changed
        .map(|((of, cost), learned)| (Row::of(of, cost, learned), learned_at.eq(clock_timestamp())))
        .collect();
    if rows.is_empty() {
        return Ok(());
    }
    diesel::insert_into(usage_estimates::table)
        .values(rows)
        .on_conflict((tenant, operation, meter))
        .do_update()
        .set((
            buckets.eq(excluded(buckets)),
            counts.eq(excluded(counts)),
            held.eq(excluded(held)),
            used.eq(excluded(used)),
            learned_at.eq(excluded(learned_at)),
        ))
        .execute(connection)
        .await?;
    Ok(())
}

/// Notes that these costs are learned of these tenants, up to their marks where they had work.
async fn move_marks(
    connection: &mut AsyncPgConnection,
    tenants: &[String],
    learned: &[String],
    marks: &Marks,
) -> Result<(), LedgerError> {
    let learned: Vec<_> = learned.iter().map(|name| Some(name.as_str())).collect();
    diesel::update(estimate_marks::table.filter(estimate_marks::tenant.eq_any(tenants)))
        .set(estimate_marks::learned.eq(learned))
        .execute(connection)
        .await?;
    for (tenant, (resolved_at, event)) in marks {
        diesel::update(estimate_marks::table.filter(estimate_marks::tenant.eq(tenant)))
            .set((
                estimate_marks::resolved_at.eq(resolved_at),
                estimate_marks::epoch.eq(event.epoch),
                estimate_marks::sequence.eq(number::signed(event.sequence)),
            ))
            .execute(connection)
            .await?;
    }
    Ok(())
}
