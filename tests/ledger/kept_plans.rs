//! Statements of a close whose plans are kept from a time when the tables that closes fill were empty.

use serde_json::Value;
use tokio_postgres::{Client, NoTls, SimpleQueryMessage};

use super::ledger;

/// As a transaction that books begins.
const BOOKING: &str = "SET enable_seqscan = off; SET jit = off; SET plan_cache_mode = force_generic_plan";
/// What one step of a plan may read for ten periods.
const ROWS_MAX: u64 = 100;
/// Postgres takes a table that was never vacuumed for larger than it is.
const EMPTIED: &str = "VACUUM (ANALYZE) continued_grants, rolled_amounts";
/// Two thousand periods that closes have filled, of as many tenants.
const FILL: &str = "SET session_replication_role = replica; \
    INSERT INTO continued_grants (tenant, grant_id, meter, period_start, amount, rolled) \
    SELECT 'tenant-' || i, gen_random_uuid(), 'page', '2026-11-01Z', 10, 10 FROM generate_series(1, 2000) i; \
    INSERT INTO rolled_amounts (tenant, meter, period_start, ends_at, periods_left, amount, rolled) \
    SELECT tenant, meter, period_start, '2026-12-01Z', 0, 15, 15 FROM continued_grants";

/// The most rows that any step of a plan has read in all.
fn most_rows(plan: &Value) -> u64 {
    let number = |field: &str| plan[field].as_u64().unwrap_or_default();
    let own = (number("Actual Rows") + number("Rows Removed by Filter")) * number("Actual Loops");
    plan["Plans"].as_array().into_iter().flatten().map(most_rows).fold(own, u64::max)
}

/// The most rows that a step of a prepared statement reads.
async fn read_by(client: &Client, call: &str) -> u64 {
    let explain = format!("EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) EXECUTE {call}");
    let answer = client.simple_query(&explain).await.unwrap();
    let row = answer.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.get(0),
        _ => None,
    });
    let plans: Value = serde_json::from_str(row.unwrap()).unwrap();
    most_rows(&plans[0]["Plan"])
}

#[tokio::test(flavor = "multi_thread")]
async fn what_closes_have_filled_is_looked_up_row_by_row_also_by_plans_from_before() {
    let (database, _ledger) = ledger().await;
    let (client, connection) = tokio_postgres::connect(&database.url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client.batch_execute(EMPTIED).await.unwrap();
    client.batch_execute(BOOKING).await.unwrap();
    let tenants = "(SELECT array_agg('tenant-' || i) FROM generate_series(1, 10) i)";
    let names: String = client.query_one(&format!("SELECT {tenants}::text"), &[]).await.unwrap().get(0);
    let keys = |at: &str| {
        format!("'{names}', array_fill('page'::text, ARRAY[10]), array_fill('{at}'::timestamptz, ARRAY[10])")
    };
    let until = "array_fill('2026-12-01Z'::timestamptz, ARRAY[10])";
    let none = "'{}', '{}', '{}'";
    for (name, statement, before, after) in [
        (
            "burnables",
            include_str!("../../src/ledger/sql/burnables.sql"),
            format!("{none}, '{{}}', 1, 1, false"),
            format!("{}, {until}, 1, 1, false", keys("2026-11-01Z")),
        ),
        (
            "rolled_amounts",
            include_str!("../../src/ledger/sql/rolled_amounts.sql"),
            none.to_owned(),
            keys("2026-11-01Z"),
        ),
        (
            "end_with_closes",
            include_str!("../../src/ledger/sql/end_with_closes.sql"),
            format!("{none}, '{{}}'"),
            format!("{}, {until}", keys("2026-11-01Z")),
        ),
    ] {
        client.batch_execute(&format!("PREPARE {name} AS {statement}")).await.unwrap();
        read_by(&client, &format!("{name}({before})")).await;
        let (filler, connection) = tokio_postgres::connect(&database.url, NoTls).await.unwrap();
        tokio::spawn(connection);
        filler.batch_execute(FILL).await.unwrap();
        let read = read_by(&client, &format!("{name}({after})")).await;
        assert!(read <= ROWS_MAX, "{name} has read {read} rows for ten periods");
        filler.batch_execute("TRUNCATE continued_grants, rolled_amounts").await.unwrap();
        client.batch_execute(EMPTIED).await.unwrap();
    }
}
