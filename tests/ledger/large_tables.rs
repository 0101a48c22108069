//! What a call may wait for reads a few rows by an index, however many there are.

use std::time::Duration;

use tollgate::domain::amount::Decimals;
use tollgate::domain::ids::Partition;
use tollgate::ledger::{CounterAsk, Ledger, RestoreAsk, TenantPlace};

use super::events::{HOUR_MS, PERIOD_START_MS, Work, meter, partition, tenant, units, user};
use super::{as_owner, ledger, rows};
use crate::support::services::TestDatabase;
use crate::support::wait::wait_for;
use crate::writer::apply::book;

const TABLES: &str =
    "('subjects', 'tenants', 'usage_hourly', 'entries_2025_12', 'balances', 'quota_periods')";

/// Of one tenant, none of whose calls had a key, and of many others.
fn fill(of: Partition) -> String {
    let partition = of.number();
    format!(
        "INSERT INTO subjects (tenant, kind, id) SELECT 'acme', 'user', 'user-' || i FROM generate_series(1, 40000) i; \
         INSERT INTO tenants (id, partition, version, definition, created_at) \
             SELECT 'tenant-' || i, {partition}, 1, '{{}}', now() - i * interval '1 s' FROM generate_series(1, 40000) i; \
         INSERT INTO usage_hourly (tenant, meter, hour_at, operation, subject, consumed, count, excess, late) \
             SELECT 'acme', 'ocr.page', to_timestamp({hour}) - (i / 400) * interval '1 hour', 'ocr.submit', i % 400, 1, 1, 0, 0 \
             FROM generate_series(400, 80000) i; \
         INSERT INTO reservations (partition, id, tenant, state, step, epoch, sequence, record, fingerprint, keyed, operation, \
                 policy_version, period_start, meters, subjects, born_at, expires_at, resolved_at) \
             SELECT {partition}, gen_random_uuid(), 'acme', 'consumed', 1, 1, i, '\\x00', '\\x00', false, 'ocr.submit', 1, \
                 to_timestamp({period}), '{{ocr.page}}', ARRAY[i % 40000], to_timestamp({hour}) - i * interval '1 s', \
                 to_timestamp({hour}), to_timestamp({hour}) FROM generate_series(1, 80000) i; \
         INSERT INTO balances (tenant, meter, period_start, period_end) \
             SELECT 'tenant-' || i, 'ocr.page', to_timestamp({period}), to_timestamp({hour}) FROM generate_series(1, 40000) i; \
         ANALYZE",
        hour = HOUR_MS / 1000,
        period = PERIOD_START_MS / 1000,
    )
}

/// How many rows of the large tables were read without an index, and how many entries of their indexes were.
async fn reads(database: &TestDatabase) -> (i64, i64) {
    let query = format!(
        "SELECT sum(seq_tup_read)::bigint AS whole, (SELECT sum(idx_tup_read)::bigint FROM pg_stat_user_indexes i \
             WHERE i.relname IN {TABLES} OR i.relname LIKE 'reservations%') AS entries \
         FROM pg_stat_user_tables WHERE relname IN {TABLES} OR relname LIKE 'reservations%'"
    );
    let found = rows(database, &query).await;
    let mut figures = found[0].split(' ').map(|figure| figure.parse().unwrap());
    (figures.next().unwrap(), figures.next().unwrap())
}

/// Ends the connections, so that Postgres has counted what they did.
async fn settled(database: &TestDatabase) -> (i64, i64) {
    database.close().await;
    database.open().await;
    wait_for("everybody else has left", Duration::from_secs(20), async || {
        let others = "SELECT count(*) AS n FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() \
                      AND backend_type = 'client backend'";
        (rows(database, others).await == ["0"]).then_some(())
    })
    .await;
    reads(database).await
}

async fn what_calls_wait_for(ledger: &Ledger, open: &Work) {
    let acme = tenant("acme");
    let decimals = Decimals::new(2).unwrap();
    let hour = |subject: Option<&str>| CounterAsk {
        meters: vec![(meter("ocr.page"), decimals, 1)],
        subject: subject.map(user),
        operations: None,
        window_start_ms: HOUR_MS,
        window_end_ms: HOUR_MS + 3_600_000,
    };
    let ask = RestoreAsk {
        counters: vec![hour(None)],
        quotas: vec![(meter("ocr.page"), decimals, PERIOD_START_MS)],
        with_open: true,
        born_since_ms: HOUR_MS - 86_400_000,
        subjects_max: Some(10),
        ..RestoreAsk::default()
    };
    let told = ledger.read_tenant(partition(&acme), &acme, &ask).await.unwrap();
    assert_eq!((told.open.len(), told.latest_born_at_ms, told.subjects), (1, Some(HOUR_MS), None));
    let of_anna = RestoreAsk {
        counters: vec![hour(Some("anna"))],
        quotas: Vec::new(),
        open_of: Some(vec![user("anna")]),
        subjects_max: None,
        ..ask
    };
    let told = ledger.read_tenant(partition(&acme), &acme, &of_anna).await.unwrap();
    assert_eq!(told.open.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [open.id]);
    assert_eq!(told.counters, [units(0)]);
    let of_ben = RestoreAsk { open_of: Some(vec![user("ben")]), ..of_anna };
    assert_eq!(ledger.read_tenant(partition(&acme), &acme, &of_ben).await.unwrap().open, []);
    ledger.cursor(partition(&acme)).await.unwrap();
    assert!(ledger.reservation(open.id).await.unwrap().is_some());
    assert!(ledger.read_tenant_definition(&tenant("tenant-77")).await.unwrap().is_some());
    let mut place = None;
    for _ in 0..3 {
        let page = ledger.list_tenants(place.as_ref(), 50).await.unwrap();
        place =
            page.last().map(|last| TenantPlace { created_at_us: last.created_at_us, id: last.id.clone() });
        assert_eq!(page.len(), 50);
    }
    assert_eq!(ledger.holders_of_older_epochs(&[partition(&acme)], None, 10).await.unwrap(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_call_waits_for_reads_no_large_table_and_no_long_stretch_of_an_index() {
    let (database, ledger) = ledger().await;
    let acme = tenant("acme");
    as_owner(&database, &fill(partition(&acme))).await.unwrap();
    let open = Work::new(&acme, "open", &[("ocr.page", 600)]).named(&[user("anna")]);
    let before = settled(&database).await;
    book(&ledger, &acme, "1-0", vec![open.reserve()]).await.unwrap();
    what_calls_wait_for(&ledger, &open).await;
    let after = settled(&database).await;
    assert!(after.0 - before.0 < 100, "{} rows were read without an index", after.0 - before.0);
    assert!(after.1 - before.1 < 2_000, "{} entries of indexes were read", after.1 - before.1);
}
