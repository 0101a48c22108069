//! Mends derived tables: balances and hourly usage are computed from the entries again, and what differs is replaced.
//!
//! Tenants that differ are found without locks. Only these are computed once more while nothing of their partition can
//! be booked, so that nothing is lost that is booked meanwhile.

use std::collections::{BTreeMap, BTreeSet};

use diesel::QueryableByName;
use diesel::sql_types::{Array, BigInt, Nullable, SmallInt, Text, Timestamptz};
use diesel_async::{AnsiTransactionManager, AsyncPgConnection, RunQueryDsl, TransactionManager};
use serde_json::json;

use super::{FAULTS_MAX, Fault, VerifyOptions, begin, end, figures, part};
use crate::domain::ids::{MeterId, Partition, TenantId};
use crate::domain::period::{Calendars, WindowKind};
use crate::domain::tenant::TenantDefinition;
use crate::ledger::chain::Chain;
use crate::ledger::columns::Milliseconds;
use crate::ledger::prepared::sql_query;
use crate::ledger::{Ledger, LedgerError, audit, capacities, cursors, instant, number, policy};

/// How many tenants are mended in one transaction; the writer waits for their partition meanwhile.
const TENANTS: usize = 20;

/// What was mended.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rebuilt {
    /// Rows of `balances` that were replaced.
    pub balances: u64,
    /// Rows of `usage_hourly` that were replaced.
    pub usage: u64,
    /// What differed, by name: of each table at most a hundred rows in a transaction.
    pub differences: Vec<Fault>,
    /// Tenants that could not be mended, and why.
    pub failed: Vec<Fault>,
}

impl Rebuilt {
    fn add(&mut self, other: Self) {
        self.balances += other.balances;
        self.usage += other.usage;
        self.differences.extend(other.differences);
        self.failed.extend(other.failed);
    }
}

#[derive(QueryableByName)]
struct TenantRow {
    #[diesel(sql_type = Text)]
    tenant: String,
}

#[derive(QueryableByName)]
struct BalanceRow {
    #[diesel(sql_type = Text)]
    tenant: TenantId,
    #[diesel(sql_type = Text)]
    meter: MeterId,
    #[diesel(sql_type = Timestamptz)]
    period_start: Milliseconds,
}

/// Replaces what differs from the entries, at `now_ms` (service time, unix ms), on behalf of `actor`. The capacities
/// that change wait to be sent to the gate.
///
/// Errors: the ledger does not answer. What was mended before stays mended.
pub async fn rebuild(
    ledger: &Ledger,
    options: VerifyOptions,
    now_ms: i64,
    actor: &str,
) -> Result<Rebuilt, LedgerError> {
    let mut connection = ledger.connection().await?;
    let mut by_partition: BTreeMap<Partition, Vec<String>> = BTreeMap::new();
    let mut done = Rebuilt::default();
    for tenant in damaged(ledger, &mut connection, options).await? {
        match TenantId::parse(&tenant) {
            Ok(id) => by_partition.entry(ledger.partition_of(&id).await?).or_default().push(tenant),
            Err(error) => done.failed.push(Fault::new(format!("tenant {tenant}"), error.to_string())),
        }
    }
    for (partition, tenants) in by_partition {
        for some in tenants.chunks(TENANTS) {
            let mended = match mend(&mut connection, partition, some, now_ms, actor).await {
                Err(error) if !error.is_transient() => {
                    mend_one_by_one(&mut connection, partition, some, now_ms, actor).await
                }
                mended => mended,
            };
            done.add(mended?);
        }
    }
    Ok(done)
}

/// Mends these tenants of a partition each for itself: one that cannot be written holds up no other.
async fn mend_one_by_one(
    connection: &mut AsyncPgConnection,
    partition: Partition,
    tenants: &[String],
    now_ms: i64,
    actor: &str,
) -> Result<Rebuilt, LedgerError> {
    let mut done = Rebuilt::default();
    for tenant in tenants {
        match mend(connection, partition, std::slice::from_ref(tenant), now_ms, actor).await {
            Ok(mended) => done.add(mended),
            Err(error) if error.is_transient() => return Err(error),
            Err(error) => done.failed.push(Fault::new(format!("tenant {tenant}"), error.to_string())),
        }
    }
    Ok(done)
}

/// Mends these tenants of a partition in one transaction.
async fn mend(
    connection: &mut AsyncPgConnection,
    partition: Partition,
    tenants: &[String],
    now_ms: i64,
    actor: &str,
) -> Result<Rebuilt, LedgerError> {
    // Locked before the first snapshot: a month that leaves meanwhile would be missing in it.
    let begin = "BEGIN; SET LOCAL statement_timeout = 0; SET LOCAL work_mem = '64MB'; \
                 LOCK TABLE entries IN ACCESS SHARE MODE";
    AnsiTransactionManager::begin_transaction_sql(connection, begin).await?;
    let mut mended = Rebuilt::default();
    match mend_here(connection, partition, tenants, now_ms, actor, &mut mended).await {
        Ok(()) => {
            AnsiTransactionManager::commit_transaction(connection).await?;
            Ok(mended)
        }
        Err(error) => {
            end(connection).await?;
            Err(error)
        }
    }
}

/// Tenants of which a balance or hourly usage differs from the entries.
async fn damaged(
    ledger: &Ledger,
    connection: &mut AsyncPgConnection,
    options: VerifyOptions,
) -> Result<Vec<String>, LedgerError> {
    begin(connection).await?;
    let parts = part::read(ledger, connection, options.snapshot_bytes).await;
    end(connection).await?;
    let mut found = Vec::new();
    for part in parts? {
        begin(connection).await?;
        let rows = damaged_of(connection, &part.tenants).await;
        end(connection).await?;
        found.extend(rows?.into_iter().map(|row| row.tenant));
    }
    Ok(found)
}

async fn damaged_of(
    connection: &mut AsyncPgConnection,
    tenants: &[String],
) -> Result<Vec<TenantRow>, LedgerError> {
    figures::make_shadows(connection, tenants).await?;
    let find = sql_query(include_str!("../sql/damaged_tenants.sql")).bind::<Array<Text>, _>(tenants);
    Ok(find.load(connection).await?)
}

async fn mend_here(
    connection: &mut AsyncPgConnection,
    partition: Partition,
    tenants: &[String],
    now_ms: i64,
    actor: &str,
    done: &mut Rebuilt,
) -> Result<(), LedgerError> {
    let ids: Vec<TenantId> = tenants.iter().filter_map(|id| TenantId::parse(id).ok()).collect();
    // Neither the writer nor a job books anything of the partition from here on, and no capacity changes.
    cursors::lock(connection, &[partition]).await?;
    capacities::lock_tenants(connection, ids.iter()).await?;
    let lock = sql_query(include_str!("../sql/lock_other_chain.sql"));
    lock.bind::<SmallInt, _>(Chain::Other(partition).number()).execute(connection).await?;
    figures::make_shadows(connection, tenants).await?;
    for differing in [
        sql_query(include_str!("../sql/differing_balances.sql")),
        sql_query(include_str!("../sql/differing_usage.sql")),
    ] {
        let named = differing.bind::<Array<Text>, _>(tenants).bind::<BigInt, _>(number::limit(FAULTS_MAX));
        done.differences.extend(named.load::<Fault>(connection).await?);
    }
    let rebuild = sql_query(include_str!("../sql/rebuild_balances.sql"));
    let mut changed: Vec<BalanceRow> = rebuild.bind::<Array<Text>, _>(tenants).load(connection).await?;
    changed.extend(add_missing(connection, tenants, done).await?);
    let mark = sql_query(include_str!("../sql/mark_balances.sql")).bind::<Array<Text>, _>(tenants);
    let marked: Vec<Fault> = mark.load(connection).await?;
    let usage = sql_query(include_str!("../sql/rebuild_usage.sql")).bind::<Array<Text>, _>(tenants);
    let usage = usage.execute(connection).await?;
    let missing = sql_query(include_str!("../sql/add_missing_usage.sql")).bind::<Array<Text>, _>(tenants);
    let usage = usage + missing.execute(connection).await?;
    let quotas: BTreeSet<_> = changed.iter().map(|row| (&row.tenant, &row.meter)).collect();
    let quotas: Vec<_> = quotas.into_iter().collect();
    capacities::raise_all_versions(connection, &quotas, now_ms).await?;
    let detail = json!({ "tenants": tenants, "balances": changed.len(), "usage": usage });
    audit::note(connection, actor, "rebuild", "books", detail).await?;
    done.balances += u64::try_from(changed.len() + marked.len()).unwrap_or(u64::MAX);
    done.differences.extend(marked.into_iter().take(FAULTS_MAX));
    done.usage += u64::try_from(usage).unwrap_or(u64::MAX);
    Ok(())
}

#[derive(QueryableByName)]
struct MissingRow {
    #[diesel(embed)]
    balance: BalanceRow,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    period_end: Option<Milliseconds>,
}

/// Adds the balances that have entries, or that a period needs to be closed, and no row. Entries do not say when their
/// period ends: a quota's period, a closure, or else the tenant's calendars do.
async fn add_missing(
    connection: &mut AsyncPgConnection,
    tenants: &[String],
    done: &mut Rebuilt,
) -> Result<Vec<BalanceRow>, LedgerError> {
    let find = sql_query(include_str!("../sql/missing_balances.sql")).bind::<Array<Text>, _>(tenants);
    let missing: Vec<MissingRow> = find.load(connection).await?;
    if missing.is_empty() {
        return Ok(Vec::new());
    }
    let mut calendars = BTreeMap::new();
    for stored in policy::read_tenants(connection, tenants.to_vec()).await? {
        if let Ok(definition) = serde_json::from_value::<TenantDefinition>(stored.definition) {
            calendars.insert(stored.id, Calendars::of(stored.calendars, definition.calendar()));
        }
    }
    let (mut added, mut ends) = (Vec::new(), Vec::new());
    for MissingRow { balance, period_end } in missing {
        let by_calendar = || {
            let calendars = calendars.get(&balance.tenant)?;
            Some(calendars.window(WindowKind::Period, balance.period_start.0).end_ms)
        };
        match period_end.map(|end| end.0).or_else(by_calendar) {
            Some(end_ms) => {
                ends.push(end_ms);
                added.push(balance);
            }
            None => done.failed.push(Fault::new(
                format!("balance {} {}", balance.tenant, balance.meter),
                "nothing says when its period ends",
            )),
        }
    }
    sql_query(include_str!("../sql/add_missing_balances.sql"))
        .bind::<Array<Text>, _>(added.iter().map(|row| &row.tenant).collect::<Vec<_>>())
        .bind::<Array<Text>, _>(added.iter().map(|row| &row.meter).collect::<Vec<_>>())
        .bind::<Array<Timestamptz>, _>(instant::all_from_ms(added.iter().map(|row| row.period_start.0))?)
        .bind::<Array<Timestamptz>, _>(instant::all_from_ms(ends)?)
        .execute(connection)
        .await?;
    Ok(added)
}
