//! Sums that the database makes and compares.

use diesel::sql_types::BigInt;
use diesel::{QueryableByName, sql_query};
use diesel_async::{AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};

use super::{Check, FAULTS_MAX, Fault};
use crate::domain::movements::Account;
use crate::ledger::{LedgerError, number};

#[derive(QueryableByName)]
struct Count {
    #[diesel(sql_type = BigInt)]
    count: i64,
}

/// Entries, identity, balances, usage and quotas.
pub(super) async fn check(
    connection: &mut AsyncPgConnection,
    rebuild: bool,
) -> Result<Vec<Check>, LedgerError> {
    let (balances, usage) = if rebuild {
        let shadows = format!(
            "CREATE TEMPORARY TABLE shadow_balances ON COMMIT DROP AS {}; \
             CREATE TEMPORARY TABLE shadow_usage ON COMMIT DROP AS {}",
            balances_from_entries(),
            USAGE_FROM_ENTRIES
        );
        connection.batch_execute(&shadows).await?;
        ("SELECT * FROM shadow_balances".to_owned(), "SELECT * FROM shadow_usage".to_owned())
    } else {
        (balances_from_entries(), USAGE_FROM_ENTRIES.to_owned())
    };
    Ok(vec![
        compare(connection, "entries are sane", "entries", ENTRIES).await?,
        compare(connection, "the identity holds", "balances", &identity()).await?,
        compare(connection, "balances follow from entries", "balances", &balances_differ(&balances)).await?,
        compare(connection, "hourly usage follows from entries", "usage_hourly", &usage_differs(&usage))
            .await?,
        compare(connection, "quotas were granted once", "quota_periods", QUOTAS).await?,
    ])
}

/// The cursors against what is booked; gaps and quarantine as warnings.
pub(super) async fn check_positions(connection: &mut AsyncPgConnection) -> Result<Check, LedgerError> {
    let mut check = compare(connection, "positions are in order", "cursors", POSITIONS).await?;
    check.warnings = load(connection, WARNINGS).await?;
    Ok(check)
}

async fn compare(
    connection: &mut AsyncPgConnection,
    name: &'static str,
    table: &str,
    faults: &str,
) -> Result<Check, LedgerError> {
    let count: Count =
        sql_query(format!("SELECT count(*) AS count FROM {table}")).get_result(connection).await?;
    let faults = load(connection, faults).await?;
    Ok(Check { checked: number::unsigned(count.count)?, faults, ..Check::of(name) })
}

async fn load(connection: &mut AsyncPgConnection, query: &str) -> Result<Vec<Fault>, LedgerError> {
    Ok(sql_query(format!("{query} LIMIT {FAULTS_MAX}")).load(connection).await?)
}

const ENTRIES: &str = "SELECT concat_ws(' ', 'entry', tenant, operation_id, 'step', step, 'line', line, 'leg', leg) AS what, \
        concat_ws(' ', amount, 'from', credit, 'to', debit) AS detail FROM entries \
    WHERE NOT (amount > 0 AND amount < 1e18) OR credit = debit OR cardinality(subjects) > 4 OR line NOT BETWEEN 0 AND 255 \
       OR (class = 'usage' AND (credit, debit) NOT IN (('available', 'reserved'), ('reserved', 'consumed'), \
               ('available', 'consumed'), ('reserved', 'available'), ('consumed', 'available')))";

const PERIOD: &str = "to_char(period_start AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"')";

fn identity() -> String {
    let sum = |source: bool| -> String {
        let accounts = Account::ALL.into_iter().filter(|account| account.is_source() == source);
        accounts.map(Account::as_str).collect::<Vec<_>>().join(" + ")
    };
    let (sources, places) = (sum(true), sum(false));
    format!(
        "SELECT concat_ws(' ', 'balance', tenant, meter, {PERIOD}) AS what, \
                concat('sources hold ', {sources}, ', places ', {places}) AS detail \
         FROM balances WHERE {sources} <> {places} OR reserved < 0 OR consumed < 0"
    )
}

/// A credit raises a source and lowers a place, a debit the reverse.
fn balances_from_entries() -> String {
    let column = |account: Account| {
        let (up, down) = if account.is_source() { ("credit", "debit") } else { ("debit", "credit") };
        let word = account.as_str();
        format!(
            "coalesce(sum(amount) FILTER (WHERE {up} = '{word}'), 0) \
             - coalesce(sum(amount) FILTER (WHERE {down} = '{word}'), 0) AS {word}"
        )
    };
    let columns: Vec<String> = Account::ALL.into_iter().map(column).collect();
    format!("SELECT tenant, meter, period_start, {} FROM entries GROUP BY 1, 2, 3", columns.join(", "))
}

fn balances_differ(recomputed: &str) -> String {
    let row = |table: &str| {
        let columns = Account::ALL.map(|account| format!("coalesce({table}.{}, 0)", account.as_str()));
        columns.join(", ")
    };
    let details: Vec<String> = Account::ALL
        .into_iter()
        .map(|account| {
            let word = account.as_str();
            format!(
                "CASE WHEN coalesce(b.{word}, 0) <> coalesce(e.{word}, 0) THEN \
                 concat('{word} is ', coalesce(b.{word}, 0), ', by entries ', coalesce(e.{word}, 0)) END"
            )
        })
        .collect();
    format!(
        "SELECT concat_ws(' ', 'balance', tenant, meter, {PERIOD}) AS what, concat_ws('; ', {}) AS detail \
         FROM balances b FULL JOIN ({recomputed}) e USING (tenant, meter, period_start) WHERE ({}) <> ({})",
        details.join(", "),
        row("b"),
        row("e")
    )
}

const USAGE_FROM_ENTRIES: &str = "SELECT tenant, meter, hour_at, operation, subject, \
        sum(CASE WHEN debit = 'consumed' THEN amount ELSE -amount END) AS consumed, \
        count(DISTINCT (operation_id, line)) FILTER (WHERE debit = 'consumed') AS count, \
        coalesce(sum(amount) FILTER (WHERE excess), 0) AS excess, coalesce(sum(amount) FILTER (WHERE late), 0) AS late \
    FROM entries, unnest(0::bigint || subjects) AS named(subject) \
    WHERE debit = 'consumed' OR credit = 'consumed' GROUP BY 1, 2, 3, 4, 5";

fn usage_differs(recomputed: &str) -> String {
    format!(
        "SELECT concat_ws(' ', 'usage', tenant, meter, hour_at AT TIME ZONE 'UTC', operation, 'subject', subject) AS what, \
                concat('is ', concat_ws('/', u.consumed, u.count, u.excess, u.late), \
                       ', by entries ', concat_ws('/', e.consumed, e.count, e.excess, e.late)) AS detail \
         FROM usage_hourly u FULL JOIN ({recomputed}) e USING (tenant, meter, hour_at, operation, subject) \
         WHERE (coalesce(u.consumed, 0), coalesce(u.count, 0), coalesce(u.excess, 0), coalesce(u.late, 0)) \
            <> (coalesce(e.consumed, 0), coalesce(e.count, 0), coalesce(e.excess, 0), coalesce(e.late, 0))"
    )
}

const QUOTAS: &str = "SELECT concat_ws(' ', 'quota', tenant, meter, period_start AT TIME ZONE 'UTC') AS what, \
        concat('opened with ', coalesce(included, 0), ', entries grant ', coalesce(granted, 0)) AS detail \
    FROM quota_periods FULL JOIN (SELECT tenant, meter, period_start, sum(amount) AS granted FROM entries \
        WHERE class = 'grant' AND credit = 'granted' GROUP BY 1, 2, 3) g USING (tenant, meter, period_start) \
    WHERE coalesce(included, 0) <> coalesce(granted, 0)";

const POSITIONS: &str = "SELECT concat('cursor of partition ', partition) AS what, \
        concat('is at ', epoch, '-', sequence, detail) AS detail FROM ( \
        SELECT c.partition, c.epoch, c.sequence, concat(', beyond epoch ', e.epoch, ' issued last') AS detail \
        FROM cursors c JOIN (SELECT partition, max(epoch) AS epoch FROM epochs GROUP BY 1) e USING (partition) WHERE c.epoch > e.epoch \
        UNION ALL \
        SELECT c.partition, c.epoch, c.sequence, concat(', but reservation ', r.id, ' is booked up to ', r.epoch, '-', r.sequence) \
        FROM cursors c JOIN reservations r USING (partition) WHERE (r.epoch, r.sequence) > (c.epoch, c.sequence)) p";

const WARNINGS: &str = "SELECT concat('partition ', partition, ' ', found_epoch, '-', found_sequence) AS what, \
        concat('gap: events after ', after_epoch, '-', after_sequence, ' are missing') AS detail FROM gaps \
    UNION ALL SELECT concat('partition ', partition, ' ', epoch, '-', sequence), concat('in quarantine: ', reason) \
        FROM quarantine WHERE status = 'open' \
    UNION ALL SELECT concat('parked ', call, ' ', number, ' of ', tenant), \
        concat('reservation ', reservation_id, CASE state WHEN 'waiting' THEN ' waits for the gate' ELSE concat(' conflicts: ', reason) END) \
        FROM (SELECT * FROM parked WHERE state <> 'done' ORDER BY number LIMIT 100) p";
