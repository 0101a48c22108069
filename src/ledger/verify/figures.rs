//! Sums that the database computes and compares.

use diesel::prelude::*;
use diesel::sql_types::{Array, BigInt, SmallInt, Text};
use diesel_async::{AsyncPgConnection, RunQueryDsl};

use super::part::Part;
use super::{Check, FAULTS_MAX, Fault};
use crate::ledger::prepared::sql_query;
use crate::ledger::schema::{
    adjustments, balances, billed_periods, corrections, cursors, entries, grants, period_closures,
    quota_periods, statements, usage_hourly,
};
use crate::ledger::{LedgerError, number};

/// Entries, identity, balances, usage and quotas.
pub(super) async fn check(
    connection: &mut AsyncPgConnection,
    part: &Part,
    rebuild: bool,
) -> Result<Vec<Check>, LedgerError> {
    let tenants = &part.tenants;
    if rebuild {
        make_shadows(connection, tenants).await?;
    }
    macro_rules! count {
        ($table:ident) => {
            $table::table.filter($table::tenant.eq_any(tenants)).count().get_result(connection).await?
        };
    }
    let (booked, stand, used) = (count!(entries), count!(balances), count!(usage_hourly));
    let (opened, granted, closed) = (count!(quota_periods), count!(grants), count!(period_closures));
    let (late, posted, issued) = (count!(corrections), count!(adjustments), count!(statements));
    let billed = count!(billed_periods);
    let checks = [
        ("entries are sane", booked, sql_query(include_str!("../sql/unsound_entries.sql"))),
        ("the identity holds", stand, sql_query(include_str!("../sql/unbalanced_balances.sql"))),
        ("balances follow from entries", stand, sql_query(include_str!("../sql/differing_balances.sql"))),
        ("hourly usage follows from entries", used, sql_query(include_str!("../sql/differing_usage.sql"))),
        ("quotas were granted once", opened, sql_query(include_str!("../sql/quotas_not_granted_once.sql"))),
        ("grants were booked once", granted, sql_query(include_str!("../sql/grants_not_booked_once.sql"))),
        ("grants gave back once", granted, sql_query(include_str!("../sql/grants_not_settled_once.sql"))),
        ("grants ended within what was used", granted, sql_query(include_str!("../sql/ends_above_use.sql"))),
        ("grants will end", granted, sql_query(include_str!("../sql/ends_not_wanted.sql"))),
        ("periods were closed once", closed, sql_query(include_str!("../sql/closures_not_booked_once.sql"))),
        (
            "what came over was booked",
            closed,
            sql_query(include_str!("../sql/rolled_amounts_not_booked.sql")),
        ),
        ("closed periods are empty", closed, sql_query(include_str!("../sql/carried_not_booked_once.sql"))),
        (
            "corrections follow from entries",
            late,
            sql_query(include_str!("../sql/differing_corrections.sql")),
        ),
        (
            "adjustments were booked once",
            posted,
            sql_query(include_str!("../sql/adjustments_not_booked_once.sql")),
        ),
        ("statements say what was used", issued, sql_query(include_str!("../sql/differing_statements.sql"))),
        ("every period was billed", billed, sql_query(include_str!("../sql/differing_billing.sql"))),
    ];
    let mut done = Vec::new();
    for (name, checked, faults) in checks {
        let faults = faults.bind::<Array<Text>, _>(tenants).bind::<BigInt, _>(number::limit(FAULTS_MAX));
        let faults: Vec<Fault> = faults.load(connection).await?;
        done.push(Check { checked: number::unsigned(checked)?, faults, ..Check::of(name) });
    }
    Ok(done)
}

/// Computes the derived tables of these tenants from their entries, into tables that hide the views of the same names
/// until the transaction ends.
pub(super) async fn make_shadows(
    connection: &mut AsyncPgConnection,
    tenants: &[String],
) -> Result<(), LedgerError> {
    let balances = sql_query(include_str!("../sql/shadow_balances.sql"));
    let usage = sql_query(include_str!("../sql/shadow_usage.sql"));
    for shadow in [balances, usage] {
        shadow.bind::<Array<Text>, _>(tenants).execute(connection).await?;
    }
    Ok(())
}

/// Compares the cursors with what is booked.
pub(super) async fn check_positions(
    connection: &mut AsyncPgConnection,
    part: &Part,
) -> Result<Check, LedgerError> {
    let partitions = &part.partitions;
    let here = cursors::table.filter(cursors::partition.eq_any(partitions));
    let checked = number::unsigned(here.count().get_result(connection).await?)?;
    let misplaced = sql_query(include_str!("../sql/misplaced_cursors.sql"));
    let misplaced = misplaced.bind::<Array<SmallInt>, _>(partitions);
    let faults: Vec<Fault> = misplaced.bind::<BigInt, _>(number::limit(FAULTS_MAX)).load(connection).await?;
    Ok(Check { checked, faults, ..Check::of("positions are in order") })
}

/// Gaps, events in quarantine and parked calls.
pub(super) async fn warnings(connection: &mut AsyncPgConnection) -> Result<Vec<Fault>, LedgerError> {
    let warnings = sql_query(include_str!("../sql/books_warnings.sql"));
    Ok(warnings.bind::<BigInt, _>(number::limit(FAULTS_MAX)).load(connection).await?)
}
