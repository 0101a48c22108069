use std::fs;

use tollgate::ledger::{Ledger, LedgerOptions};
use uuid::Uuid;

use super::events::{HOUR_MS, PARTITIONS, Work, tenant};
use super::{as_owner, bare, ledger, options, rows, rows_at};
use crate::support::process::tollgate;
use crate::support::services::TestDatabase;
use crate::writer::apply::{assert_proven, book};

const COLUMNS: &str = "SELECT table_name, column_name, data_type, is_nullable, column_default FROM information_schema.columns \
                       WHERE table_schema = 'public' AND table_name <> '__diesel_schema_migrations' ORDER BY 1, ordinal_position";
const CONSTRAINTS: &str = "SELECT conname, pg_get_constraintdef(oid) FROM pg_constraint WHERE connamespace = 'public'::regnamespace ORDER BY 1, 2";

#[tokio::test(flavor = "multi_thread")]
async fn migrations_go_up_down_and_up_again_to_the_same_schema() {
    let database = bare().await;
    let applied = Ledger::migrate(&database.url).await.unwrap().applied;
    assert_eq!(applied.len(), Ledger::migrations().unwrap().len());
    let first = (rows(&database, COLUMNS).await, rows(&database, CONSTRAINTS).await);
    assert!(!first.0.is_empty());
    Ledger::revert_migrations(&database.url).await.unwrap();
    assert_eq!(rows(&database, COLUMNS).await, Vec::<String>::new(), "down.sql leaves these");
    let functions = "SELECT proname FROM pg_proc WHERE pronamespace = 'public'::regnamespace";
    assert_eq!(rows(&database, functions).await, Vec::<String>::new(), "down.sql leaves these functions");
    Ledger::migrate(&database.url).await.unwrap();
    assert_eq!((rows(&database, COLUMNS).await, rows(&database, CONSTRAINTS).await), first);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_service_role_sees_which_migrations_are_missing_without_making_any_table() {
    let database = bare().await;
    let as_itself = Ledger::connect(LedgerOptions { role: None, ..options(&database) }).await.unwrap();
    assert_eq!(as_itself.pending_migrations().await.unwrap(), Ledger::migrations().unwrap());
    assert_eq!(
        rows(&database, "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public'")
            .await,
        [""; 0]
    );
    Ledger::migrate(&database.url).await.unwrap();
    let as_service = Ledger::connect(options(&database)).await.unwrap();
    assert_eq!(as_service.pending_migrations().await.unwrap(), [""; 0]);
    as_owner(&database, "DELETE FROM __diesel_schema_migrations WHERE version = '20261101100500'")
        .await
        .unwrap();
    assert_eq!(as_service.pending_migrations().await.unwrap(), ["2026-11-01-100500_grant_roles"]);
}

/// What the service's roles may do, column by column and whichever user gave it.
const RIGHTS: &str = "SELECT grantee, table_name, column_name, privilege_type FROM information_schema.column_privileges \
        WHERE grantee IN ('tollgate_service', 'tollgate_writer') \
    UNION SELECT grantee, table_name, '', privilege_type FROM information_schema.table_privileges \
        WHERE grantee IN ('tollgate_service', 'tollgate_writer') \
    UNION SELECT grantee, routine_name, '', privilege_type FROM information_schema.routine_privileges \
        WHERE grantee IN ('tollgate_service', 'tollgate_writer') \
    ORDER BY 1, 2, 3, 4";

/// Runs `tollgate migrate` on this database; returns what it warns of.
async fn migrated_by_command(url: &str) -> String {
    let mut command = tollgate(&["migrate"]);
    command.env("TOLLGATE__POSTGRES__URL", url).env("TOLLGATE__REDIS__URL", "redis://127.0.0.1:1/");
    command.env("TOLLGATE__INSTALLATION__SECRET", "0123456789abcdef0123456789abcdef");
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8(output.stderr).unwrap();
    said.split_once("warning: ").map(|(_, warning)| warning.to_owned()).unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn where_the_roles_cannot_be_made_migrate_says_so_and_gives_them_their_rights_once_they_are() {
    let server = tokio::task::spawn_blocking(TestDatabase::of_its_own).await.unwrap();
    as_owner(&server, "CREATE ROLE keeper LOGIN").await.unwrap();
    as_owner(&server, "CREATE DATABASE books OWNER keeper").await.unwrap();
    let (address, _) = server.url.rsplit_once('/').unwrap();
    let books = |user: &str| format!("{}/books", address.replacen("//tollgate@", &format!("//{user}@"), 1));

    let warning = migrated_by_command(&books("keeper")).await;
    let statements = "CREATE ROLE tollgate_service NOLOGIN; CREATE ROLE tollgate_writer NOLOGIN;";
    assert!(warning.contains(&format!("`{statements}`")), "{warning}");
    assert_eq!(rows_at(&books("tollgate"), RIGHTS).await, [""; 0]);

    as_owner(&server, statements).await.unwrap();
    assert_eq!(migrated_by_command(&books("keeper")).await, "");
    let migrated = bare().await;
    Ledger::migrate(&migrated.url).await.unwrap();
    let given = rows_at(&books("tollgate"), RIGHTS).await;
    assert_eq!(given, rows(&migrated, RIGHTS).await, "as where the migrations have made the roles");
    as_owner(&server, "CREATE ROLE clerk LOGIN IN ROLE tollgate_service").await.unwrap();
    let clerk = LedgerOptions { url: books("clerk"), ..options(&server) };
    let ledger = Ledger::connect(clerk).await.unwrap();
    assert_eq!(ledger.pending_migrations().await.unwrap(), [""; 0]);
    ledger.install(PARTITIONS, [7; 32]).await.unwrap();
    Ledger::migrate(&books("keeper")).await.unwrap();
    assert_eq!(rows_at(&books("tollgate"), RIGHTS).await, given, "once more changes nothing");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_instances_migrate_at_once_and_each_step_is_applied_once() {
    let database = bare().await;
    let (one, other) = tokio::join!(Ledger::migrate(&database.url), Ledger::migrate(&database.url));
    let (one, other) = (one.unwrap().applied, other.unwrap().applied);
    assert_eq!(one.len() + other.len(), Ledger::migrations().unwrap().len());
    assert!(one.is_empty() || other.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_that_cannot_have_its_table_says_so_soon_and_can_be_repeated() {
    let database = bare().await;
    Ledger::migrate(&database.url).await.unwrap();
    let step = "2026-11-22-212000_keep_young_batches";
    let down = fs::read_to_string(format!("migrations/{step}/down.sql")).unwrap();
    let forget = "DELETE FROM __diesel_schema_migrations WHERE version = '20261122212000'";
    as_owner(&database, &format!("{down}; {forget}")).await.unwrap();
    let (client, connection) = tokio_postgres::connect(&database.url, tokio_postgres::NoTls).await.unwrap();
    let connection = tokio::spawn(connection);
    client.batch_execute("BEGIN; LOCK TABLE batches IN ROW EXCLUSIVE MODE").await.unwrap();
    let refused = Ledger::migrate(&database.url).await.unwrap_err().to_string();
    assert!(refused.contains("lock timeout") && refused.contains("migrate again"), "{refused}");
    client.batch_execute("ROLLBACK").await.unwrap();
    assert_eq!(Ledger::migrate(&database.url).await.unwrap().applied, ["20261122212000"]);
    drop(client);
    connection.await.unwrap().unwrap();
}

/// The newest steps down to this one, the newest first.
fn newest_down_to(first: &str) -> Vec<String> {
    let all = Ledger::migrations().unwrap().into_iter();
    let mut newest: Vec<_> = all.skip_while(|name| name != first).collect();
    newest.reverse();
    newest
}

/// Takes back the newest steps down to this one.
async fn undo_down_to(database: &TestDatabase, first: &str) {
    for name in newest_down_to(first) {
        let down = fs::read_to_string(format!("{}/migrations/{name}/down.sql", env!("CARGO_MANIFEST_DIR")));
        let version = name.split('_').next().unwrap().replace('-', "");
        let forget = format!("DELETE FROM __diesel_schema_migrations WHERE version = '{version}'");
        as_owner(database, &format!("{}; {forget}", down.unwrap())).await.unwrap();
    }
}

const KEYS_OF_ENTRIES: &str = "SELECT DISTINCT count(*) AS indexes, string_agg(split_part(indexdef, ' USING ', 2), ' / ' ORDER BY split_part(indexdef, ' USING ', 2)) AS of \
                               FROM pg_indexes WHERE tablename LIKE 'entries%' GROUP BY tablename";

#[tokio::test(flavor = "multi_thread")]
async fn a_ledger_with_entries_of_several_months_takes_the_newest_steps_and_stays_proven() {
    let (database, ledger) = ledger().await;
    let acme = tenant("acme");
    let mut jobs: Vec<_> =
        (0..4).map(|n| Work::new(&acme, &format!("job-{n}"), &[("ocr.page", 600)])).collect();
    let mut events: Vec<_> = jobs.iter().map(Work::reserve).collect();
    events.extend(jobs.iter_mut().take(2).map(|job| job.consume(&[700], true)));
    let months_ms = [-31, 0, 31].map(|days| HOUR_MS + days * 86_400_000);
    for (event, at_ms) in events.iter_mut().zip(months_ms.into_iter().cycle()) {
        event[2..10].copy_from_slice(&at_ms.to_le_bytes());
    }
    book(&ledger, &acme, "1-0", events).await.unwrap();
    let entries = "SELECT * FROM entries ORDER BY operation_id, step, line, leg";
    let reservations = "SELECT * FROM reservations ORDER BY id";
    let booked = (rows(&database, entries).await, rows(&database, reservations).await);
    assert_eq!(booked.1.len(), 4);

    undo_down_to(&database, "2026-11-22-200000_leave_room_for_updates").await;
    let before =
        ["2 btree (tenant, happened_at DESC) / btree (tenant, operation_id, step, line, leg, happened_at)"];
    assert_eq!(rows(&database, KEYS_OF_ENTRIES).await, before);
    let in_one_table =
        "SELECT count(*) FROM reservations WHERE tableoid::regclass::text ~ '^reservations_[0-7]$'";
    assert_eq!(rows(&database, in_one_table).await, ["4"]);

    Ledger::migrate(&database.url).await.unwrap();
    // Types that are created again have other numbers.
    let ledger = Ledger::connect(options(&database)).await.unwrap();
    let after = [
        "3 brin (booked_at) WITH (autosummarize='on') / btree (tenant, happened_at, operation_id, step, line, leg) \
         / btree (tenant, meter) WHERE (meter ~~ 'money:%'::text)",
    ];
    assert_eq!(rows(&database, KEYS_OF_ENTRIES).await, after);
    assert_eq!((rows(&database, entries).await, rows(&database, reservations).await), booked);
    assert_eq!(rows(&database, PLACES).await, ["reservations_open 2", "reservations_resolved 2"]);
    assert_proven(&ledger).await;
    ledger.ensure_month_partitions(HOUR_MS + 62 * 86_400_000, HOUR_MS + 62 * 86_400_000).await.unwrap();
    assert_eq!(rows(&database, KEYS_OF_ENTRIES).await, after, "of a month made since, too");
    let ends: Vec<_> = jobs.iter_mut().skip(2).map(|job| job.release(&[0])).collect();
    book(&ledger, &acme, "1-6", ends).await.unwrap();
    assert_eq!(rows(&database, PLACES).await, ["reservations_resolved 4"]);
    assert_proven(&ledger).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn balances_are_marked_as_closed_whichever_version_has_closed_them() {
    let (database, _ledger) = ledger().await;
    undo_down_to(&database, "2026-11-27-300100_mark_closed_balances").await;
    let balances = "INSERT INTO balances (tenant, meter, period_start, period_end) \
         SELECT 'acme', 'm-' || i, '2026-03-01Z', '2026-04-01Z' FROM generate_series(1, 3) i";
    let closed = |meter: &str| {
        format!(
            "INSERT INTO period_closures (tenant, meter, period_start, period_end, closed_at, lapsed, overage) \
             VALUES ('acme', '{meter}', '2026-03-01Z', '2026-04-01Z', '2026-04-01T01:00:00Z', 0, 0)"
        )
    };
    as_owner(&database, &format!("{balances}; {}", closed("m-1"))).await.unwrap();
    Ledger::migrate(&database.url).await.unwrap();
    let marked = "SELECT meter FROM balances WHERE is_closed ORDER BY 1";
    assert_eq!(rows(&database, marked).await, ["m-1"]);
    as_owner(&database, &closed("m-3")).await.unwrap();
    assert_eq!(
        rows(&database, marked).await,
        ["m-1", "m-3"],
        "an instance of the version before writes no mark"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn periods_that_include_nothing_and_were_never_closed_get_a_balance_where_something_may_go_on() {
    let (database, _ledger) = ledger().await;
    undo_down_to(&database, "2026-11-27-910000_close_empty_periods").await;
    let periods = "INSERT INTO quota_periods (tenant, meter, period_start, period_end, decimals, included, version, max_rollover, \
             preserve_overage, followed_version) \
         SELECT 'acme', meter, '2026-03-01Z', '2026-04-01Z', 0, included, 1, max_rollover, preserve_overage, followed_version \
         FROM (VALUES ('rolls', 0, 5, false, NULL), ('preserves', 0, 0, true, NULL), ('neither', 0, 0, false, NULL), \
             ('includes', 9, 5, false, NULL), ('follows', 0, 5, false, 7::bigint), ('used', 0, 5, true, NULL)) \
             AS v(meter, included, max_rollover, preserve_overage, followed_version)";
    let used = "INSERT INTO balances (tenant, meter, period_start, period_end, granted, available) \
         VALUES ('acme', 'used', '2026-03-01Z', '2026-04-01Z', 3, 3)";
    as_owner(&database, &format!("{periods}; {used}")).await.unwrap();
    Ledger::migrate(&database.url).await.unwrap();
    let balances = "SELECT meter, available::float8 AS a FROM balances WHERE NOT is_closed ORDER BY 1";
    assert_eq!(rows(&database, balances).await, ["preserves 0", "rolls 0", "used 3"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_deleted_tenants_have_asked_for_is_declined_by_the_step_that_ends_it() {
    let (database, _ledger) = ledger().await;
    undo_down_to(&database, "2026-11-27-920000_decline_what_deleted_tenants_asked_for").await;
    let asked = "INSERT INTO tenants (id, partition, version, definition) VALUES ('again', 0, 3, '{}'), ('kept', 0, 1, '{}'); \
         INSERT INTO policy_history (kind, id, version, policy_version, definition, effective_at) VALUES \
             ('tenant', 'again', 1, 1, '{}', '2026-03-01Z'), ('tenant', 'again', 2, 2, NULL, '2026-03-05Z'), \
             ('tenant', 'again', 3, 3, '{}', '2026-03-06Z'), ('tenant', 'kept', 1, 4, '{}', '2026-03-01Z'); \
         INSERT INTO upgrade_requests \
             (tenant, id, plan, reason, state, requested_at, requested_by, effective_at, applied_at) \
         SELECT tenant, gen_random_uuid(), plan, '', state, asked_at::timestamptz, 'me', effective_at::timestamptz, applied_at::timestamptz \
         FROM (VALUES \
             ('gone', 'a', 'pending', '2026-03-02Z', NULL, NULL), \
             ('gone', 'b', 'approved', '2026-03-02Z', '2026-04-01Z', NULL), \
             ('again', 'c', 'approved', '2026-03-02Z', '2026-04-01Z', NULL), \
             ('again', 'd', 'approved', '2026-03-02Z', '2026-03-03Z', '2026-03-03Z'), \
             ('again', 'e', 'pending', '2026-03-07Z', NULL, NULL), \
             ('kept', 'f', 'approved', '2026-03-02Z', '2026-04-01Z', NULL) \
         ) AS asked (tenant, plan, state, asked_at, effective_at, applied_at)";
    as_owner(&database, asked).await.unwrap();
    Ledger::migrate(&database.url).await.unwrap();
    let states = "SELECT plan, state, decided_by FROM upgrade_requests ORDER BY plan";
    assert_eq!(
        rows(&database, states).await,
        [
            "a declined installation",
            "b declined installation",
            "c declined installation",
            "d approved",
            "e pending",
            "f approved"
        ]
    );
    let noted =
        "SELECT action, detail ->> 'plan' AS plan FROM audit_log WHERE actor = 'installation' ORDER BY 2";
    assert_eq!(rows(&database, noted).await, ["decline a", "decline b", "decline c"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_billed_before_an_upgrade_counts_as_one_period_and_the_version_before_goes_on_from_there() {
    let (database, _ledger) = ledger().await;
    undo_down_to(&database, "2026-11-27-930000_note_billed_periods").await;
    let billing = "INSERT INTO billing (tenant, billed_until, begun_at, next_end) VALUES \
         ('acme', '2026-03-01Z', '2026-01-01Z', '2026-04-01Z'), ('new', '2026-03-10Z', NULL, '2026-04-01Z'), \
         ('old', '2026-04-01T00:00:10Z', NULL, '2026-05-01Z')";
    as_owner(&database, billing).await.unwrap();
    Ledger::migrate(&database.url).await.unwrap();
    let noted = "SELECT tenant, to_char(period_start AT TIME ZONE 'UTC', 'MM') AS start, \
         to_char(period_end AT TIME ZONE 'UTC', 'MM') AS end, last_number FROM billed_periods ORDER BY 1, period_end";
    assert_eq!(rows(&database, noted).await, ["acme 01 03 0"]);
    let bill =
        "UPDATE billing SET billed_until = '2026-04-01Z', begun_at = coalesce(begun_at, '2026-03-01Z')";
    as_owner(&database, bill).await.unwrap();
    // Of these it is not known which documents they have.
    assert_eq!(rows(&database, noted).await, ["acme 01 03 0", "acme 03 04", "new 03 04", "old 03 04"]);
    as_owner(&database, "DELETE FROM billing WHERE tenant = 'acme'").await.unwrap();
    assert_eq!(rows(&database, noted).await, ["new 03 04", "old 03 04"]);
}

const PLACES: &str = "SELECT tableoid::regclass AS place, count(*) FROM reservations GROUP BY 1 ORDER BY 1";

#[tokio::test(flavor = "multi_thread")]
async fn what_an_instance_of_the_version_before_writes_of_reservations_goes_to_its_place() {
    let (database, ledger) = ledger().await;
    let acme = tenant("acme");
    let work = Work::new(&acme, "job", &[("ocr.page", 600)]);
    book(&ledger, &acme, "1-0", vec![work.reserve()]).await.unwrap();
    // That version has one table, into which it puts new rows and changed ones, whatever their state.
    let former = |change: &str| {
        format!(
            "INSERT INTO reservations AS r SELECT (json_populate_record(o, '{change}')).* FROM reservations o \
             ON CONFLICT (partition, id, tenant) DO UPDATE SET state = excluded.state, step = excluded.step, \
             resolved_at = excluded.resolved_at"
        )
    };
    let standing = async |change: &str| {
        as_owner(&database, &former(change)).await.unwrap();
        rows(&database, "SELECT tableoid::regclass AS place, state, step FROM reservations ORDER BY 1").await
    };
    assert_eq!(standing(r#"{"step": 2}"#).await, ["reservations_open reserved 2"]);
    let expired = r#"{"step": 3, "state": "expired", "resolved_at": "2026-01-01"}"#;
    assert_eq!(standing(expired).await, ["reservations_resolved expired 3"]);
    assert_eq!(standing(r#"{"step": 4, "state": "consumed"}"#).await, ["reservations_resolved consumed 4"]);
    let another = format!(r#"{{"id": "{}", "state": "reserved", "step": 1}}"#, Uuid::nil());
    let both = ["reservations_open reserved 1", "reservations_resolved consumed 4"];
    assert_eq!(standing(&another).await, both);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_installation_keeps_its_partitions_and_its_secret() {
    let (_database, ledger) = ledger().await;
    ledger.install(super::events::PARTITIONS, [7; 32]).await.unwrap();
    let other_partitions = ledger.install(64, [7; 32]).await.unwrap_err();
    assert!(other_partitions.to_string().contains("installed with 4 partitions"), "{other_partitions}");
    let other_secret = ledger.install(super::events::PARTITIONS, [8; 32]).await.unwrap_err();
    assert!(other_secret.to_string().contains("another secret"), "{other_secret}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_books_refuse_to_be_edited_even_by_their_owner() {
    let (database, ledger) = ledger().await;
    ledger.ensure_month_partitions(1_764_547_200_000, 1_764_547_200_000).await.unwrap();
    let insert = "INSERT INTO entries (tenant, operation_id, step, line, leg, meter, period_start, credit, debit, amount, class, \
                  happened_at, booked_at, operation, hour_at, subjects, chain, batch) VALUES ('acme', gen_random_uuid(), 1, 0, 0, 'm', \
                  '2025-12-01', 'available', 'reserved', 1, 'usage', '2025-12-02', now(), '', '2025-12-02', '{}', 0, 1)";
    as_owner(&database, insert).await.unwrap();
    for edit in [
        "UPDATE entries SET amount = 2",
        "DELETE FROM entries",
        "TRUNCATE entries",
        "UPDATE entries_2025_12 SET amount = 2",
        "DELETE FROM entries_2025_12",
        "TRUNCATE entries_2025_12",
        "TRUNCATE batches",
    ] {
        let error = as_owner(&database, edit).await.expect_err(edit);
        assert!(error.as_db_error().unwrap().message().contains("never edited"), "{edit}: {error:?}");
        let as_service = format!("SET ROLE tollgate_service; {edit}");
        let error = as_owner(&database, &as_service).await.expect_err(edit);
        assert!(error.as_db_error().unwrap().message().contains("permission denied"), "{edit}: {error:?}");
    }
    for (amount, rule) in [("'NaN'", "bounded"), ("-1", "bounded"), ("0", "bounded"), ("1e18", "bounded")] {
        let error =
            as_owner(&database, &insert.replace("'reserved', 1,", &format!("'reserved', {amount},"))).await;
        assert!(error.unwrap_err().as_db_error().unwrap().constraint().unwrap().contains(rule), "{amount}");
    }
}
