//! Keys that are used again once the gate has forgotten them: for the whole horizon they are the same job.

use serde_json::{Value, json};
use tollgate::app::Role;

use crate::ledger::rows;
use crate::support::app::*;
use crate::support::wait::wait_for;

const PATIENCE: std::time::Duration = std::time::Duration::from_secs(30);

async fn with_limits(app: &TestApp) {
    app.with_plan(json!([day_of("1000")]), json!([quota_of("900")])).await;
}

/// Every tombstone ends, as after a day.
async fn forget(app: &TestApp) {
    let mut connection = app.redis.connection().await;
    let keys: Vec<String> = redis::cmd("KEYS").arg("tg1:*:rsv:*").query_async(&mut connection).await.unwrap();
    if !keys.is_empty() {
        redis::cmd("DEL").arg(keys).exec_async(&mut connection).await.unwrap();
    }
}

async fn seal(app: &TestApp) {
    app.drained().await;
    app.app().operations.memory.key_filters.seal_keys(PATIENCE).await.unwrap();
}

/// As [`seal`], while the gate may be looking at its clock.
async fn seal_until_done(app: &TestApp) {
    wait_for("keys are sealed", PATIENCE, async || {
        app.app().operations.memory.key_filters.seal_keys(PATIENCE).await.ok()
    })
    .await;
}

/// A run that is still under way when the clock goes on is followed by the next one an hour later, which never comes.
async fn retention_has_run(app: &TestApp, at: &str) {
    let due = format!("SELECT count(*) FROM jobs WHERE name = 'retention' AND next_due > '{at}'");
    wait_for("retention has run", PATIENCE, async || {
        (rows(&app.database, &due).await == ["1"]).then_some(())
    })
    .await;
}

fn asks(app: &TestApp, found: &str) -> u64 {
    let metrics = app.app().operations.metrics_text();
    let name = format!("tollgate_key_asks_total{{found=\"{found}\"}} ");
    metrics.lines().find_map(|line| line.strip_prefix(&name)).unwrap().parse().unwrap()
}

/// One job of each kind, resolved: path, key, body, and state.
async fn jobs(app: &TestApp) -> Vec<(&'static str, &'static str, Value, Answered, &'static str)> {
    let short = |amount: u32| {
        let mut body = pages(amount);
        body["ttl_seconds"] = json!(1);
        body
    };
    let mut jobs = Vec::new();
    for (path, key, body, end) in [
        (RESERVATIONS, "consumed", pages(5), "consumed"),
        (RESERVATIONS, "released", pages(6), "released"),
        (RESERVATIONS, "expired", short(7), "expired"),
        (USAGE, "usage", pages(8), "consumed"),
    ] {
        let first = app.post_keyed(path, key, body.clone()).await.expect(201);
        let id = first.text("/id").to_owned();
        match key {
            "consumed" => {
                app.consume(&id, "4").await.expect(200);
            }
            "released" => {
                app.release(&id).await.expect(200);
            }
            _ => {}
        }
        wait_for("it is resolved", PATIENCE, async || {
            let found = app.get(&format!("{RESERVATIONS}/{id}")).await;
            (found.text("/status") == end).then_some(())
        })
        .await;
        jobs.push((path, key, body, first, end));
    }
    jobs
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_the_gate_has_forgotten_is_the_same_job_on_every_instance_also_after_a_restart() {
    let mut app = spawn_app().await;
    with_limits(&app).await;
    let jobs = jobs(&app).await;
    seal(&app).await;
    let second = app.another_instance().await;
    for round in 0..3 {
        if round == 2 {
            app.restart().await;
        }
        for (path, key, body, first, status) in &jobs {
            forget(&app).await;
            // By the other instance too, which has its filters from the ledger.
            let caller = if round == 1 { app.at(second.url()) } else { app.caller() };
            let post = async |body: &Value| caller.post_keyed(path, key, body.clone()).await;
            let mut other = body.clone();
            other["amount"] = json!("99");
            post(&other).await.is_problem(422, "idempotency_key_reused");
            forget(&app).await;
            let again = post(body).await.expect(200);
            assert_eq!(
                (&again.body["replayed"], again.text("/status")),
                (&json!(true), *status),
                "{key} in round {round}: {again:?}"
            );
            for field in ["id", "expires_at"] {
                assert_eq!(again.body[field], first.body[field], "{key}: {again:?}");
            }
        }
    }
    second.stop().await;
    let quota = app.quota().await;
    assert_eq!((quota.text("/quotas/0/consumed"), quota.text("/quotas/0/reserved")), ("12", "0"));
    let untouched =
        "SELECT (SELECT count(*) FROM repeats) AS repeats, (SELECT count(*) FROM quarantine) AS waiting";
    assert_eq!(rows(&app.database, untouched).await, ["0 0"]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn new_keys_are_not_asked_of_the_ledger_while_the_filters_are_held() {
    let app = spawn_app().await;
    with_limits(&app).await;
    for number in 0..50 {
        app.use_pages(&format!("before-{number}"), 1).await.expect(201);
    }
    seal(&app).await;
    let before = asks(&app, "new");
    for number in 0..200 {
        app.use_pages(&format!("after-{number}"), 1).await.expect(201);
    }
    let asked = asks(&app, "new") - before;
    assert!(asked <= 4, "{asked} of 200 new keys asked");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_instance_that_lacks_a_filter_asks_for_every_key_and_admits_none_while_it_cannot() {
    let app = an_app()
        .at_ms(1_790_000_000_000)
        .with("redis.response_timeout_ms", 2000)
        .with("ledger.ack_timeout_ms", 2000)
        .with("ledger.restore_wait_ms", 2000)
        .with("http.request_timeout_ms", 2500)
        .on_own_postgres()
        .start()
        .await;
    with_limits(&app).await;
    app.use_pages("old", 3).await.expect(201);
    seal(&app).await;
    app.use_pages("new", 2).await.expect(201);
    app.drained().await;
    forget(&app).await;
    // No key is sealed for a day: an instance without jobs, and without notices of those that have them.
    let lacking = app.another_instance_with(&[Role::Http, Role::Writer]).await;
    let post = async |key: &str, amount: u32| {
        let request = app.client().post(format!("{}{USAGE}", lacking.url())).bearer_auth(app.key());
        let request = request.header("Idempotency-Key", key).json(&pages(amount));
        answered(request.send().await.unwrap()).await
    };
    post("warm", 1).await.expect(201);
    let frozen = app.database.freeze();
    post("while the filters suffice", 1).await.expect(201);
    app.clock.advance_to(app.clock.now_ms() + 25 * 3_600_000).unwrap();
    for key in ["old", "new", "never used"] {
        let answer = post(key, 3).await;
        assert_eq!(answer.status, 503, "{key}: {answer:?}");
    }
    drop(frozen);
    let until_answered = async |key: &str, amount: u32| {
        wait_for("the ledger answers again", PATIENCE, async || {
            let answer = post(key, amount).await;
            (answer.status != 503).then_some(answer)
        })
        .await
    };
    assert_eq!(until_answered("old", 3).await.expect(200).body["replayed"], true);
    assert_eq!(until_answered("new", 2).await.expect(200).body["replayed"], true, "it was never sealed");
    // One of its calls may have gone on after its caller was sent away.
    assert!(matches!(until_answered("never used", 3).await.status, 200 | 201));
    lacking.stop().await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_the_horizon_a_key_means_a_new_job_and_not_before() {
    let app = an_app().at_ms(1_790_000_000_000).start().await;
    with_limits(&app).await;
    let first = app.use_pages("job", 3).await.expect(201);
    seal(&app).await;
    let at = |days: i64| {
        jiff::Timestamp::from_millisecond(1_790_000_000_000 + days * 86_400_000).unwrap().to_string()
    };
    app.move_clock(&at(34)).await;
    forget(&app).await;
    let again = app.post_until_answered(USAGE, "job", pages(3)).await.expect(200);
    assert_eq!((&again.body["replayed"], again.text("/id")), (&json!(true), first.text("/id")));
    retention_has_run(&app, &at(34)).await;
    app.move_clock(&at(36)).await;
    wait_for("it is archived", PATIENCE, async || {
        let archived = rows(&app.database, "SELECT count(*) FROM reservations_archive").await;
        (archived == ["1"]).then_some(())
    })
    .await;
    forget(&app).await;
    let anew = app.post_until_answered(USAGE, "job", pages(4)).await.expect(201);
    assert_eq!(anew.text("/id"), first.text("/id"));
    app.drained().await;
    assert_eq!(rows(&app.database, "SELECT count(*) FROM quarantine").await, ["0"]);
    assert_eq!(rows(&app.database, "SELECT sum(consumed)::float8 AS c FROM balances").await, ["7"]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_whose_job_was_consumed_late_is_the_same_job_until_its_row_is_archived_and_a_new_job_after_it()
{
    let start_ms = 1_790_000_000_000;
    let app = an_app().at_ms(start_ms).start().await;
    with_limits(&app).await;
    let on_day = async |day: i64| {
        let now = jiff::Timestamp::from_millisecond(start_ms + day * 86_400_000).unwrap();
        app.move_clock(&now.to_string()).await;
    };
    let first = app.post_keyed(RESERVATIONS, "job", pages(5)).await.expect(201);
    let path = format!("{RESERVATIONS}/{}", first.text("/id"));
    seal(&app).await;
    on_day(6).await;
    wait_for("it expires", PATIENCE, async || {
        (app.get(&path).await.text("/status") == "expired").then_some(())
    })
    .await;
    let late = app.post(&format!("{path}/consume"), json!({ "amount": "5" })).await.expect(200);
    assert_eq!(late.text("/status"), "consumed");
    seal(&app).await;
    for day in [38, 40] {
        on_day(day).await;
        seal_until_done(&app).await;
        forget(&app).await;
        let again = app.post_until_answered(RESERVATIONS, "job", pages(5)).await.expect(200);
        assert_eq!((&again.body["replayed"], again.text("/status")), (&json!(true), "consumed"), "day {day}");
    }
    let day_40 = jiff::Timestamp::from_millisecond(start_ms + 40 * 86_400_000).unwrap();
    retention_has_run(&app, &day_40.to_string()).await;
    on_day(42).await;
    wait_for("it is archived", PATIENCE, async || {
        let archived = rows(&app.database, "SELECT count(*) FROM reservations_archive").await;
        (archived == ["1"]).then_some(())
    })
    .await;
    forget(&app).await;
    let anew = app.post_until_answered(RESERVATIONS, "job", pages(5)).await.expect(201);
    assert_eq!(anew.text("/id"), first.text("/id"));
    app.post(&format!("{path}/consume"), json!({ "amount": "5" })).await.expect(200);
    app.drained().await;
    let kept =
        "SELECT (SELECT count(*) FROM repeats) AS repeats, (SELECT count(*) FROM quarantine) AS waiting";
    assert_eq!(rows(&app.database, kept).await, ["0 0"]);
    assert_eq!(rows(&app.database, "SELECT sum(consumed)::float8 AS c FROM balances").await, ["10"]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_admitted_wrongly_is_billed_once_whenever_it_is_consumed() {
    let app = spawn_app().await;
    with_limits(&app).await;
    let mut billed = 0;
    // Consumed at once, and once the gate has taken the repeat back; after a first life that consumed, and one that did
    // not.
    for (key, first_total, waits) in [("a", 4, false), ("b", 4, true), ("c", 0, false), ("d", 0, true)] {
        let job = app.post_keyed(RESERVATIONS, key, pages(5)).await.expect(201);
        let path = format!("{RESERVATIONS}/{}", job.text("/id"));
        if first_total > 0 {
            app.post(&format!("{path}/consume"), json!({ "amount": "4" })).await.expect(200);
        } else {
            app.post(&format!("{path}/release"), json!({})).await.expect(200);
        }
        app.drained().await;
        forget(&app).await;
        // Not sealed yet, so that no filter has the key.
        app.post_keyed(RESERVATIONS, key, pages(5)).await.expect(201);
        if waits {
            app.drained().await;
            wait_for("what came again is taken back", PATIENCE, async || {
                app.app().ledger.repeats_to_undo(None, 10).await.unwrap().is_empty().then_some(())
            })
            .await;
        }
        app.post(&format!("{path}/consume"), json!({ "amount": "4" })).await.expect(200);
        billed += 4;
        app.drained().await;
        wait_for("gate and books agree", PATIENCE, async || {
            let quota = app.get("/v1/tenants/acme/quota").await;
            let figures = (quota.text("/quotas/0/consumed"), quota.text("/quotas/0/reserved"));
            (figures == (billed.to_string().as_str(), "0")).then_some(())
        })
        .await;
    }
    assert_eq!(rows(&app.database, "SELECT count(*) FROM quarantine").await, ["0"]);
    assert_eq!(rows(&app.database, "SELECT sum(consumed)::float8 AS c FROM balances").await, ["16"]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn usage_that_waits_in_quarantine_is_not_acknowledged_by_the_ledger_once_the_gate_has_forgotten_it() {
    let app = spawn_app().await;
    with_limits(&app).await;
    app.use_pages("before", 1).await.expect(201);
    app.drained().await;
    let (client, connection) =
        tokio_postgres::connect(&app.database.url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    // The writer reads nothing before it has the cursor.
    client.batch_execute("BEGIN; SELECT FROM cursors FOR UPDATE").await.unwrap();
    let used = app.use_pages("job", 5).await.expect(201);
    // Its event waits after one that cannot be booked.
    let waits = format!(
        "INSERT INTO quarantine (partition, epoch, sequence, reservation_id, tenant, event, reason) \
         SELECT partition, 9, 9, '{}', tenant, 'torn', 'a test' FROM reservations LIMIT 1; COMMIT",
        used.text("/id")
    );
    client.batch_execute(&waits).await.unwrap();
    wait_for("it waits in quarantine", PATIENCE, async || {
        (app.app().ledger.count_quarantined().await.unwrap() == 2).then_some(())
    })
    .await;
    app.redis.flush().await;
    let mut body = pages(5);
    body["ack"] = json!("ledger");
    let again = app.post_keyed(USAGE, "job", body).await;
    again.is_problem(503, "ledger_timeout");
    let at_the_gate = app.use_pages("job", 5).await.expect(200);
    assert_eq!((at_the_gate.text("/id"), at_the_gate.text("/ack")), (used.text("/id"), "gate"));
    app.leave_unbalanced("a usage that the gate has waits in quarantine");
}
