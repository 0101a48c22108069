//! The ends of grants: voided and expired ones give back what is unburnt, exactly, and never let more through.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};
use tollgate::domain::ids::{Epoch, MeterId, OutboxId, TenantId};
use tollgate::ledger::Voided;

use crate::jobs::statements::faults;
use crate::ledger::{as_owner, rows};
use crate::support::app::*;
use crate::support::wait::wait_for;

const GRANTS: &str = "/v1/admin/grants";
const END: &str = "2026-04-01T00:00:00Z";

/// Tenant `acme` with a quota of fifty pages a month, in UTC, on the tenth of March; jobs run only when a test asks.
async fn app() -> TestApp {
    let app = an_app().at("2026-03-10T12:00:00Z").without_jobs().start().await;
    app.with_plan(json!([]), json!([quota_of("50")])).await;
    app
}

/// Grants pages that burn before what is included, or after it; the grant's id.
async fn granted(app: &TestApp, key: &str, amount: &str, priority: u8, expires_at: &str) -> String {
    let body = json!({
        "tenant": "acme", "meter": "page", "amount": amount, "kind": "paid", "priority": priority, "expires_at": expires_at
    });
    app.post_keyed(GRANTS, key, body).await.expect(201).text("/id").to_owned()
}

async fn voided(app: &TestApp, id: &str) -> Answered {
    app.post(&format!("{GRANTS}/{id}/void"), json!({})).await
}

/// Uses pages for good, without a key.
async fn uses(app: &TestApp, amount: &str) -> u16 {
    let answer = app.post(RESERVATIONS, pages(amount)).await;
    if answer.status == 201 {
        app.consume(answer.text("/id"), amount).await.expect(200);
    }
    assert!(matches!(answer.status, 201 | 429 | 503), "{answer:?}");
    answer.status
}

/// Capacity and what remains of it, as the gate reads the quota.
async fn left(app: &TestApp) -> (String, String) {
    let quota = app.quota().await;
    (quota.text("/quotas/0/granted").to_owned(), quota.text("/quotas/0/remaining").to_owned())
}

fn pair(granted: &str, remaining: &str) -> (String, String) {
    (granted.to_owned(), remaining.to_owned())
}

const GIVEN_BACK: &str = "SELECT debit, amount::float8 AS a, happened_at AT TIME ZONE 'UTC' AS at FROM entries \
                          WHERE class = 'grant' AND credit = 'available' ORDER BY happened_at, amount";

async fn given_back(app: &TestApp) -> Vec<String> {
    rows(&app.database, GIVEN_BACK).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_voided_grant_gives_back_what_is_unburnt_at_once_and_only_once() {
    let app = app().await;
    let id = granted(&app, "a", "10", 1, END).await;
    assert_eq!(uses(&app, "4").await, 201);
    let answer = voided(&app, &id).await.expect(200);
    assert_eq!((answer.text("/status"), answer.text("/unburnt")), ("voided", "6"), "{answer:?}");
    assert_eq!(answer.text("/voided_at"), "2026-03-10T12:00:00Z");
    assert_eq!(left(&app).await, pair("54", "50"));
    assert_eq!((uses(&app, "50").await, uses(&app, "1").await), (201, 429));
    assert_eq!(given_back(&app).await, ["voided 6 2026-03-10T12:00:00"]);
    let again = voided(&app, &id).await.expect(200);
    assert_eq!((&again.body["replayed"], again.text("/unburnt")), (&json!(true), "6"));
    assert_eq!(given_back(&app).await.len(), 1);
    app.drained().await;
    app.redis.flush().await;
    assert_eq!(left(&app).await, pair("54", "0"), "restored from the books");
    voided(&app, "00000000-0000-0000-0000-000000000000").await.is_problem(404, "not_found");
    app.finish().await;
}

#[rstest::rstest]
#[case::burnt_first(1, "30", "0", "60")]
#[case::burnt_last(99, "30", "10", "50")]
#[case::burnt_in_part(99, "53", "7", "53")]
#[tokio::test(flavor = "multi_thread")]
async fn how_much_is_unburnt_follows_the_burn_order(
    #[case] priority: u8,
    #[case] used: &str,
    #[case] unburnt: &str,
    #[case] capacity: &str,
) {
    let app = app().await;
    let id = granted(&app, "a", "10", priority, END).await;
    assert_eq!(uses(&app, used).await, 201);
    assert_eq!(voided(&app, &id).await.expect(200).text("/unburnt"), unburnt);
    assert_eq!(left(&app).await.0, capacity);
    assert_eq!(given_back(&app).await.len(), usize::from(unburnt != "0"), "nothing unburnt has no entry");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_grant_burns_only_while_it_counts_whatever_begins_and_ends_around_it() {
    let app = app().await;
    assert_eq!(uses(&app, "5").await, 201);
    let first = granted(&app, "a", "10", 2, END).await;
    assert_eq!(uses(&app, "3").await, 201);
    let second = granted(&app, "b", "10", 1, END).await;
    assert_eq!(uses(&app, "4").await, 201);
    assert_eq!(voided(&app, &first).await.text("/unburnt"), "7");
    assert_eq!(uses(&app, "2").await, 201);
    assert_eq!(voided(&app, &second).await.text("/unburnt"), "4");
    assert_eq!(uses(&app, "1").await, 201);
    // 50 included and 3 and 6 burnt.
    assert_eq!(left(&app).await, pair("59", "44"));
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn holds_protect_nothing_of_a_voided_grant_and_what_they_consume_beyond_it_is_overage() {
    let app = app().await;
    let id = granted(&app, "a", "10", 99, END).await;
    let held = app.hold("58").await;
    assert_eq!(voided(&app, &id).await.expect(200).text("/unburnt"), "10");
    assert_eq!(left(&app).await, pair("50", "0"));
    assert_eq!(uses(&app, "1").await, 429);
    app.consume(&held, "58").await.expect(200);
    let quota = app.quota().await;
    assert_eq!((quota.text("/quotas/0/overage"), quota.text("/quotas/0/remaining")), ("8", "0"));
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn holds_protect_nothing_of_an_expired_grant_and_what_they_consume_beyond_the_others_is_overage() {
    let app = app().await;
    granted(&app, "first", "10", 1, "2026-03-10T13:00:00Z").await;
    let held = app.held(pages("58").lasting(86_400)).await;
    app.move_clock("2026-03-10T13:00:00Z").await;
    app.app().operations.grants.follow().await.unwrap();
    assert_eq!(given_back(&app).await, ["lapsed 10 2026-03-10T13:00:00"], "what is held burns nothing");
    assert_eq!(uses(&app, "1").await, 429);
    app.consume(&held, "58").await.expect(200);
    let quota = app.quota().await;
    assert_eq!((quota.text("/quotas/0/overage"), quota.text("/quotas/0/remaining")), ("8", "0"));
    assert_eq!(given_back(&app).await.len(), 1);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grant_that_is_voided_before_it_begins_never_does() {
    let app = app().await;
    let body = json!({
        "tenant": "acme", "meter": "page", "amount": "10", "kind": "paid", "effective_at": "2026-03-20T00:00:00Z",
        "expires_at": END
    });
    let id = app.post_keyed(GRANTS, "a", body).await.expect(201).text("/id").to_owned();
    let answer = voided(&app, &id).await.expect(200);
    assert_eq!((answer.text("/status"), &answer.body["unburnt"]), ("voided", &Value::Null));
    assert_eq!(rows(&app.database, "SELECT grant_id FROM due_cuts").await, [""; 0]);
    app.move_clock("2026-03-20T00:00:00Z").await;
    assert_eq!(app.app().operations.grants.follow().await.unwrap().begun, 0);
    assert_eq!(left(&app).await, pair("50", "50"));
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grant_that_is_voided_before_a_job_books_its_begin_keeps_what_was_burnt_of_it() {
    let app = app().await;
    let body = json!({
        "tenant": "acme", "meter": "page", "amount": "10", "kind": "paid", "effective_at": "2026-03-20T00:00:00Z",
        "expires_at": END
    });
    let id = app.post_keyed(GRANTS, "a", body).await.expect(201).text("/id").to_owned();
    assert_eq!(uses(&app, "1").await, 201);
    app.move_clock("2026-03-20T00:00:00Z").await;
    assert_eq!((uses(&app, "54").await, uses(&app, "6").await), (201, 429), "the gate counts it already");
    let answer = voided(&app, &id).await.expect(200);
    assert_eq!((answer.text("/status"), &answer.body["unburnt"]), ("voided", &json!("5")));
    let quota = app.quota().await;
    let figure = |name: &str| quota.text(&format!("/quotas/0/{name}")).to_owned();
    assert_eq!(
        (figure("granted"), figure("remaining"), figure("overage")),
        ("55".into(), "0".into(), "0".into())
    );
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_void_that_was_only_asked_for_is_finished_by_the_job() {
    let app = app().await;
    let id = granted(&app, "a", "10", 1, END).await;
    assert_eq!(uses(&app, "4").await, 201);
    let ledger = &app.app().ledger;
    ledger.void_grant(id.parse().unwrap(), app.clock.now_ms(), "somebody").await.unwrap();
    assert_eq!(app.get(&format!("{GRANTS}/{id}")).await.text("/status"), "ending");
    let done = app.app().operations.grants.follow().await.unwrap();
    assert_eq!(done.settled, 1, "{done:?}");
    assert_eq!(left(&app).await, pair("54", "50"));
    assert_eq!(app.get(&format!("{GRANTS}/{id}")).await.text("/unburnt"), "6");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_booked_as_unburnt_and_does_not_follow_from_the_cuts_is_named() {
    let app = app().await;
    let id = granted(&app, "a", "10", 1, END).await;
    granted(&app, "b", "5", 60, END).await;
    assert_eq!(uses(&app, "4").await, 201);
    voided(&app, &id).await.expect(200);
    app.drained().await;
    assert_eq!(faults(&app).await, [""; 0]);
    let cut_at = |consumed: &str| {
        format!("SET session_replication_role = replica; UPDATE cuts SET consumed = {consumed} WHERE is_end")
    };
    as_owner(&app.database, &cut_at("7")).await.unwrap();
    let named = faults(&app).await.concat();
    assert!(named.contains(&format!("grant {id} of acme page")), "{named}");
    assert!(named.contains("gave back 6, by its cuts 3"), "{named}");
    as_owner(&app.database, &cut_at("4")).await.unwrap();
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_grant_lapses_by_what_is_unburnt_and_meanwhile_only_what_fits_without_it_is_admitted() {
    let app = app().await;
    let id = granted(&app, "a", "10", 50, "2026-03-20T00:00:00Z").await;
    assert_eq!(uses(&app, "4").await, 201);
    app.drained().await;
    app.database.close().await;
    app.move_clock("2026-03-20T00:00:00Z").await;
    assert_eq!(left(&app).await, pair("50", "46"), "without all of it, as long as the ledger is away");
    assert!(
        app.quota().await.body["quotas"][0].get("adjusted").is_none(),
        "it is not known, which is not zero"
    );
    let hold = |amount: &str| app.post(RESERVATIONS, pages(amount));
    assert_eq!(hold("40").await.status, 201);
    assert_eq!(hold("7").await.status, 503, "whether it fits is not known yet");
    assert_eq!(hold("6").await.status, 201);
    app.database.open().await;
    let settled = hold("4").await;
    assert_eq!((settled.status, uses(&app, "1").await), (201, 429), "{settled:?}");
    assert_eq!(left(&app).await, pair("54", "0"));
    assert_eq!(app.quota().await.text("/quotas/0/adjusted"), "0");
    assert_eq!(given_back(&app).await, ["lapsed 6 2026-03-20T00:00:00"]);
    let expired = app.get(&format!("{GRANTS}/{id}")).await;
    assert_eq!((expired.text("/status"), expired.text("/unburnt")), ("expired", "6"));
    voided(&app, &id).await.is_problem(409, "already_resolved");
    app.drained().await;
    app.redis.flush().await;
    assert_eq!(left(&app).await, pair("54", "0"));
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grant_that_began_and_ended_while_no_job_ran_is_booked_and_lapses_whole() {
    let app = app().await;
    let body = json!({
        "tenant": "acme", "meter": "page", "amount": "10", "kind": "paid", "priority": 1,
        "effective_at": "2026-03-12T00:00:00Z", "expires_at": "2026-03-14T00:00:00Z"
    });
    app.post_keyed(GRANTS, "a", body).await.expect(201);
    assert_eq!(uses(&app, "20").await, 201);
    app.drained().await;
    app.move_clock("2026-03-15T00:00:00Z").await;
    app.redis.flush().await;
    assert_eq!(left(&app).await, pair("50", "30"), "settled by the restore");
    assert_eq!(given_back(&app).await, ["lapsed 10 2026-03-14T00:00:00"]);
    assert_eq!(app.app().operations.grants.follow().await.unwrap().settled, 0);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_void_that_is_asked_for_again_and_again_ends_at_the_first_boundary_however_late_that_is_booked() {
    let app = app().await;
    let id = granted(&app, "a", "10", 1, "2026-03-20T00:00:00Z").await;
    // The boundary at which it began is one that the wishes below must not meet.
    app.drained().await;
    let ledger = &app.app().ledger;
    let stored = match ledger.void_grant(id.parse().unwrap(), app.clock.now_ms(), "somebody").await.unwrap() {
        Voided::Ending(stored) => stored,
        other => panic!("{other:?}"),
    };
    for sequence in [1_000, 2_000] {
        let place = OutboxId { epoch: Epoch(0), sequence };
        ledger.want_end(stored.clone(), place).await.unwrap();
    }
    let wished = "SELECT due_at AT TIME ZONE 'UTC' AS at, sequence FROM due_cuts WHERE is_end";
    assert_eq!(rows(&app.database, wished).await, ["1970-01-01T00:00:00 1000"]);
    assert_eq!(ledger.voided_grants(None, None, 10).await.unwrap(), [], "its end is wanted already");
    app.app().operations.grants.follow().await.unwrap();
    assert_eq!(app.get(&format!("{GRANTS}/{id}")).await.text("/status"), "voided");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_capacity_that_is_read_while_a_grant_is_settled_is_of_one_instant() {
    let app = app().await;
    granted(&app, "a", "10", 50, "2026-03-20T00:00:00Z").await;
    let (mut owner, connection) =
        tokio_postgres::connect(&app.database.url, tokio_postgres::NoTls).await.unwrap();
    let connection = tokio::spawn(connection);
    let settling = owner.transaction().await.unwrap();
    settling.batch_execute("LOCK TABLE grants IN ACCESS EXCLUSIVE MODE").await.unwrap();
    let (ledger, tenant, meter) =
        (app.app().ledger.clone(), TenantId::parse("acme").unwrap(), MeterId::parse("page").unwrap());
    let reading = tokio::spawn(async move {
        let march_ms = 1_772_323_200_000;
        ledger.quota_capacity(&tenant, &meter, march_ms).await.unwrap().unwrap()
    });
    wait_for("the reader waits for the grants", Duration::from_secs(20), async || {
        let waiting = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
        (settling.query_one(waiting, &[]).await.ok()?.get::<_, i64>(0) > 0).then_some(())
    })
    .await;
    settling.batch_execute("UPDATE grants SET settled_at = expires_at, settled_amount = 0").await.unwrap();
    settling.commit().await.unwrap();
    let read = reading.await.unwrap();
    assert!(!read.bounds_ms.is_empty(), "the version before the settle has the bound: {read:?}");
    drop(owner);
    connection.await.unwrap().unwrap();
    app.finish().await;
}

/// The capacity of the open period in the books.
async fn booked_capacity(app: &TestApp) -> String {
    let capacity =
        "SELECT trim_scale(capacity)::text AS c FROM quota_capacities WHERE period_start = '2026-03-01'";
    rows(&app.database, capacity).await.remove(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn after_random_grants_voids_ends_and_use_the_gate_has_what_the_books_have_and_let_nothing_through() {
    let seed: u64 = rand::random();
    println!("seed {seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let app = app().await;
    let (mut now_ms, mut ids) = (app.clock.now_ms(), Vec::new());
    for step in 0..60 {
        match random.random_range(0..10) {
            0..2 => {
                let (priority, amount) =
                    (random.random_range(48..53), random.random_range(1..30).to_string());
                let ends_ms = now_ms + random.random_range(1..200) * 3_600_000;
                let ends =
                    jiff::Timestamp::from_millisecond(ends_ms.min(1_775_001_600_000)).unwrap().to_string();
                ids.push(granted(&app, &step.to_string(), &amount, priority, &ends).await);
            }
            2 if !ids.is_empty() => {
                let id = ids.remove(random.random_range(0..ids.len()));
                assert!(matches!(voided(&app, &id).await.status, 200 | 409));
            }
            3 => {
                now_ms += random.random_range(1..20) * 3_600_000;
                let now =
                    jiff::Timestamp::from_millisecond(now_ms.min(1_775_001_599_000)).unwrap().to_string();
                now_ms = now_ms.min(1_775_001_599_000);
                app.move_clock(&now).await;
            }
            4 if random.random_bool(0.3) => {
                app.drained().await;
                app.redis.flush().await;
            }
            _ => {
                let amount = random.random_range(1..15);
                let status = uses(&app, &amount.to_string()).await;
                let remaining: i64 = left(&app).await.1.parse().unwrap();
                assert!(
                    status == 201 || remaining < amount,
                    "{status}: {amount} of {remaining}, step {step}"
                );
            }
        }
        app.app().operations.grants.follow().await.unwrap();
        app.drained().await;
        assert_eq!(left(&app).await.0, booked_capacity(&app).await, "step {step}");
    }
    let overdrawn = "SELECT tenant FROM balances WHERE available < 0";
    assert_eq!(rows(&app.database, overdrawn).await, [""; 0], "no unit beyond the truth");
    app.finish().await;
}
