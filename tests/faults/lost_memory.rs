//! Redis emptied under a running service.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::json;
use tollgate::app::Role;
use tollgate::domain::ids::{Partition, TenantId};

use crate::ledger::{as_owner, rows};
use crate::support::app::*;
use crate::support::services::directory;
use crate::support::wait::wait_for;

async fn with_limits(app: &TestApp) {
    let limits = json!([
        { "id": "day", "meter": "page", "window": "day", "capacity": "100" },
        { "id": "user", "meter": "page", "scope": "subject", "subject_kind": "user", "window": "day", "capacity": "60" }
    ]);
    app.with_plan(limits, json!([quota_of("90")])).await;
}

fn reserve(amount: u32) -> serde_json::Value {
    pages(amount).by("ada").lasting(3600)
}

#[tokio::test(flavor = "multi_thread")]
async fn after_flushall_quota_answers_are_right_again_and_limits_hold() {
    let app = spawn_app().await;
    with_limits(&app).await;
    let job = app.post_keyed(RESERVATIONS, "job-1", reserve(20)).await;
    let id = job.body["id"].as_str().unwrap().to_owned();
    app.consume(&id, "15").await;
    let held = app.post_keyed(RESERVATIONS, "job-2", reserve(30)).await;
    app.drained().await;
    let before = app.get("/v1/tenants/acme/quota?subject=ada&kind=user").await.body;

    app.redis.flush().await;

    let after = app.get("/v1/tenants/acme/quota?subject=ada&kind=user").await.body;
    assert_eq!(after["limits"], before["limits"]);
    assert_eq!(after["quotas"], before["quotas"]);
    let too_much = app.post(RESERVATIONS, reserve(20)).await;
    assert_eq!(too_much.status, 429, "{too_much:?}");
    assert_eq!(too_much.body["refused_by"][0]["id"], "user");
    let fits = app.post(RESERVATIONS, reserve(15)).await;
    assert_eq!(fits.status, 201, "{fits:?}");
    let id = held.body["id"].as_str().unwrap();
    let consumed = app.resolve(id, "consume", json!({})).await;
    assert_eq!(consumed.body["lines"][0]["consumed"], "30", "{consumed:?}");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_flushall_the_limits_of_every_partition_hold_whichever_is_asked_first() {
    let app = spawn_app().await;
    with_limits(&app).await;
    let tenants: Vec<String> = (0..8).map(|number| format!("tenant-{number}")).collect();
    let partition = |name: &String| Partition::of(&TenantId::parse(name).unwrap(), PARTITIONS);
    assert!(tenants.iter().map(partition).collect::<BTreeSet<_>>().len() > 4);
    let usage = |tenant: &String, amount: &str| pages(amount).of(tenant.as_str());
    for tenant in &tenants {
        app.define(&format!("tenants/{tenant}"), json!({ "plan": "plan" })).await;
        app.post_keyed(USAGE, "most", usage(tenant, "85")).await.expect(201);
    }
    app.drained().await;
    for first in 0..tenants.len() {
        app.redis.flush().await;
        // After the first was asked, only a partition's own epoch shows that it has lost its memory.
        for tenant in tenants.iter().cycle().skip(first).take(tenants.len()) {
            app.post_keyed(USAGE, "too-much", usage(tenant, "20")).await.expect(429);
        }
    }
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_flushall_a_repeat_of_keyed_work_is_still_the_same_reservation() {
    let app = spawn_app().await;
    with_limits(&app).await;
    let first = app.post_keyed(RESERVATIONS, "job-1", reserve(20)).await;
    assert_eq!(first.status, 201, "{first:?}");
    let id = first.body["id"].as_str().unwrap().to_owned();
    app.consume(&id, "15").await;
    let open = app.post_keyed(RESERVATIONS, "job-2", reserve(10)).await;
    app.drained().await;
    app.redis.flush().await;
    for _ in 0..2 {
        let again = app.post_keyed(RESERVATIONS, "job-1", reserve(20)).await;
        assert_eq!((again.status, again.body["status"].as_str()), (200, Some("consumed")), "{again:?}");
        assert_eq!(again.body["id"], first.body["id"]);
        let repeat = app.consume(&id, "15").await;
        assert_eq!((repeat.status, repeat.body["replayed"].as_bool()), (200, Some(true)), "{repeat:?}");
        let still_open = app.post_keyed(RESERVATIONS, "job-2", reserve(10)).await;
        assert_eq!((still_open.status, still_open.body["status"].as_str()), (200, Some("reserved")));
        assert_eq!(still_open.body["id"], open.body["id"]);
    }
    let quota = app.get("/v1/tenants/acme/quota").await.body;
    assert_eq!(quota["quotas"][0]["consumed"], "15");
    assert_eq!(quota["quotas"][0]["reserved"], "10");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_flushall_a_consume_that_a_cap_had_cut_is_still_a_repeat_when_it_comes_again() {
    let app = spawn_app().await;
    with_limits(&app).await;
    let cap = json!({ "unit": "page", "without_limit": "unlimited", "on_excess": "cap" });
    app.define("meters/page", cap).await;
    let other = app.post_keyed(RESERVATIONS, "other", reserve(20)).await.expect(201);
    for (key, is_final) in [("part", false), ("whole", true)] {
        let held = app.post_keyed(RESERVATIONS, key, reserve(10)).await.expect(201);
        let path = reservation(held.text("/id"), "consume");
        let consume = json!({ "amount": "80", "final": is_final, "ack": "ledger" });
        let first = app.post(&path, consume.clone()).await.expect(200);
        assert_ne!(first.text("/lines/0/uncharged"), "", "{first:?}");
        app.redis.flush().await;
        // There is room again for the units that were cut, but the consume was answered without them.
        app.release(other.text("/id")).await.expect(200);
        let again = app.post(&path, consume).await.expect(200);
        assert_eq!(again.body["replayed"], true, "{again:?}");
        assert_eq!(again.body["lines"][0]["consumed"], first.body["lines"][0]["consumed"], "{again:?}");
    }
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_flushall_a_late_part_is_known_and_takes_a_larger_total() {
    let app = spawn_app().await;
    with_limits(&app).await;
    let mut short = reserve(20);
    short["ttl_seconds"] = json!(1);
    let held = app.post(RESERVATIONS, short).await.expect(201);
    let path = format!("/v1/reservations/{}", held.text("/id"));
    wait_for("the hold expires", Duration::from_secs(20), async || {
        (app.get(&path).await.expect(200).text("/status") == "expired").then_some(())
    })
    .await;
    let consume = async |total: &str, is_final: bool| {
        let body = json!({ "amount": total, "final": is_final, "ack": "ledger" });
        let late = app.post(&format!("{path}/consume"), body).await.expect(200);
        (
            late.text("/status").to_owned(),
            late.text("/lines/0/consumed").to_owned(),
            late.body["replayed"] == true,
        )
    };
    let said = |status: &str, total: &str, is_repeat| (status.to_owned(), total.to_owned(), is_repeat);
    assert_eq!(consume("5", false).await, said("expired", "5", false));
    app.redis.flush().await;
    assert_eq!(consume("5", false).await, said("expired", "5", true));
    assert_eq!(consume("12", false).await, said("expired", "12", false));
    app.redis.flush().await;
    assert_eq!(consume("15", true).await, said("consumed", "15", false));
    let quota = app.get("/v1/tenants/acme/quota").await.body;
    assert_eq!(
        (&quota["quotas"][0]["consumed"], &quota["quotas"][0]["reserved"]),
        (&json!("15"), &json!("0"))
    );
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_service_on_a_restarted_redis_goes_on_where_it_was() {
    let mut app = spawn_app().await;
    with_limits(&app).await;
    app.post_keyed(RESERVATIONS, "job-1", reserve(20)).await;
    app.drained().await;
    app.redis.restart().unwrap();
    app.restart().await;
    let again = app.post_keyed(RESERVATIONS, "job-1", reserve(20)).await;
    assert_eq!((again.status, again.body["replayed"].as_bool()), (200, Some(true)), "{again:?}");
    let id = again.body["id"].as_str().unwrap();
    let released = app.release(id).await;
    assert_eq!(released.status, 200, "{released:?}");
    let quota = app.get("/v1/tenants/acme/quota").await.body;
    assert_eq!(quota["limits"][0]["reserved"], "0");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_flushall_a_hold_that_names_a_subject_expires_although_nobody_asks_for_the_subject() {
    let app = spawn_app().await;
    with_limits(&app).await;
    let hold = pages("7").by("ada").lasting(1);
    app.post(RESERVATIONS, hold).await;
    app.drained().await;
    app.redis.flush().await;
    let reserved = async || {
        let quota = app.get("/v1/tenants/acme/quota").await.body;
        quota["quotas"][0]["reserved"].as_str().map(str::to_owned)
    };
    wait_for("the hold has expired", Duration::from_secs(30), async || {
        (reserved().await.as_deref() == Some("0")).then_some(())
    })
    .await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outbox_that_lost_the_event_booked_last_gets_a_new_epoch_and_goes_on() {
    let app = spawn_app().await;
    with_limits(&app).await;
    let usage = |key: &str| {
        let body = pages("1").with("ack", "ledger");
        let key = key.to_owned();
        let app = &app;
        async move { app.post_keyed(USAGE, &key, body).await }
    };
    assert_eq!(usage("first").await.status, 201);
    let mut connection = app.redis.connection().await;
    let keys: Vec<String> =
        redis::cmd("KEYS").arg("tg1:*:outbox").query_async(&mut connection).await.unwrap();
    let last: redis::streams::StreamRangeReply = redis::cmd("XREVRANGE")
        .arg(&keys[0])
        .arg(&["+", "-", "COUNT", "1"])
        .query_async(&mut connection)
        .await
        .unwrap();
    redis::cmd("XDEL").arg(&keys[0]).arg(&last.ids[0].id).exec_async(&mut connection).await.unwrap();
    wait_for("calls are booked again", Duration::from_secs(30), async || {
        (usage("second").await.status < 300).then_some(())
    })
    .await;
    let third = usage("third").await;
    assert_eq!(third.status, 201, "{third:?}");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_epoch_that_the_ledger_has_lost_is_issued_again_with_the_one_after_it_and_its_events_are_booked() {
    let app = an_app().without_writer().start().await;
    with_limits(&app).await;
    app.use_pages("before", "1").await.expect(201);
    let writer = app.another_instance_with(&[Role::Writer]).await;
    app.drained().await;
    writer.stop().await;
    app.redis.flush().await;
    app.use_pages("of the lost epoch", "2").await.expect(201);
    let newest = "SELECT DISTINCT max(epoch) FROM epochs GROUP BY partition";
    assert_eq!(rows(&app.database, newest).await, ["2"]);
    as_owner(&app.database, "DELETE FROM epochs WHERE epoch = 2").await.unwrap();
    let writer = app.another_instance_with(&[Role::Writer]).await;
    assert_eq!(rows(&app.database, newest).await, ["3"]);
    app.use_pages("after", "4").await.expect(201);
    app.drained().await;
    let booked = "SELECT trim_scale(sum(consumed)) FROM usage_hourly";
    assert_eq!(rows(&app.database, booked).await, ["7"]);
    writer.stop().await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_writer_that_meets_an_epoch_which_the_ledger_has_lost_books_its_events() {
    let app = an_app().without_writer().start().await;
    with_limits(&app).await;
    app.use_pages("before", "1").await.expect(201);
    let writer = app.another_instance_with(&[Role::Writer]).await;
    app.drained().await;
    // Somebody else has the leases of its outboxes, so that it learns of nothing meanwhile.
    as_owner(&app.database, "UPDATE leases SET owner = 'nobody', expires_at = now() + interval '1 hour' WHERE name LIKE 'writer/%'")
        .await
        .unwrap();
    app.redis.flush().await;
    app.use_pages("of the lost epoch", "2").await.expect(201);
    as_owner(&app.database, "DELETE FROM epochs WHERE epoch = 2").await.unwrap();
    as_owner(&app.database, "DELETE FROM leases WHERE owner = 'nobody'").await.unwrap();
    app.drained().await;
    app.use_pages("after", "4").await.expect(201);
    app.drained().await;
    let booked = "SELECT trim_scale(sum(consumed)) FROM usage_hourly";
    assert_eq!(rows(&app.database, booked).await, ["7"]);
    writer.stop().await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeat_from_before_a_loss_of_memory_is_confirmed_as_soon_as_the_books_are_asked() {
    const WAIT_FOR_A_CURSOR: Duration = Duration::from_millis(200);
    let app = spawn_app().await;
    with_limits(&app).await;
    let hold = app.post_keyed(RESERVATIONS, "held", reserve(30)).await.expect(201);
    let path = reservation(hold.text("/id"), "consume");
    let consume = async || app.post(&path, json!({ "amount": "30", "ack": "ledger" })).await;
    consume().await.expect(200);
    app.redis.flush().await;
    wait_for("the reservation is known again", Duration::from_secs(30), async || {
        (consume().await.status == 200).then_some(())
    })
    .await;
    // Each would wait as long at least; on a busy machine some take longer.
    wait_for("one is confirmed sooner", Duration::from_secs(60), async || {
        let began = Instant::now();
        consume().await.expect(200);
        (began.elapsed() < WAIT_FOR_A_CURSOR).then_some(())
    })
    .await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ledger_set_back_beyond_the_outbox_and_a_restarted_redis_leave_nobody_waiting() {
    let mut app = spawn_app().await;
    with_limits(&app).await;
    let usage = |key: &'static str| (key, pages("1").with("ack", "ledger"));
    for (key, body) in [usage("first"), usage("second")] {
        assert_eq!(app.post_keyed(USAGE, key, body).await.status, 201);
    }
    app.stop().await;
    // The event that the ledger has booked last is no longer in the outbox, the one after it is.
    let mut connection = app.redis.connection().await;
    let keys: Vec<String> =
        redis::cmd("KEYS").arg("tg1:*:outbox").query_async(&mut connection).await.unwrap();
    redis::cmd("XTRIM").arg(&keys[0]).arg(&["MAXLEN", "1"]).exec_async(&mut connection).await.unwrap();
    as_owner(&app.database, "UPDATE cursors SET sequence = sequence - 1 WHERE sequence > 0").await.unwrap();
    app.redis.restart().unwrap();
    app.restart().await;
    wait_for("a cold call is answered", Duration::from_secs(30), async || {
        let (key, body) = usage("third");
        (app.post_keyed(USAGE, key, body).await.status < 300).then_some(())
    })
    .await;
    app.stop().await;
    app.leave_unbalanced("an event that the books take for booked is in no outbox");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_acknowledged_and_lost_is_reported_in_units_by_the_instance_that_saw_it() {
    let app = an_app().without_writer().start().await;
    with_limits(&app).await;
    let usage = |amount: &str| pages(amount);
    let hold = app.post(RESERVATIONS, reserve(5)).await.expect(201);
    app.consume(hold.text("/id"), "4").await.expect(200);
    app.post_keyed(USAGE, "lost", usage("3")).await.expect(201);
    app.redis.flush().await;
    wait_for("the tenant is served again", Duration::from_secs(30), async || {
        (app.post_keyed(USAGE, "kept", usage("2")).await.status < 300).then_some(())
    })
    .await;
    let writer = app.another_instance_with(&[Role::Writer]).await;
    let lost = wait_for("the losses are told", Duration::from_secs(30), async || {
        let lost = app.app().ledger.lost_units().await.ok()?;
        (!lost.is_empty()).then_some(lost)
    })
    .await;
    let page = &lost[0];
    assert_eq!((page.meter.as_str(), page.events), ("page", 3), "{lost:?}");
    assert_eq!(
        (page.held.normalize().to_string(), page.consumed.normalize().to_string()),
        ("5".into(), "7".into())
    );
    let metrics =
        app.client().get(format!("{}/metrics", app.ops_url())).send().await.unwrap().text().await.unwrap();
    assert!(metrics.contains("tollgate_acknowledged_events_lost_total 3"), "{metrics}");
    writer.stop().await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_lost_of_a_partition_that_nobody_calls_any_more_is_reported_too() {
    let app = an_app().without_writer().start().await;
    with_limits(&app).await;
    let usage = pages("3");
    app.post_keyed(USAGE, "lost", usage.clone()).await.expect(201);
    app.redis.flush().await;
    let writer = app.another_instance_with(&[Role::Writer]).await;
    let lost = wait_for("the loss is told", Duration::from_secs(30), async || {
        let lost = app.app().ledger.lost_units().await.ok()?;
        (!lost.is_empty()).then_some(lost)
    })
    .await;
    assert_eq!((lost[0].meter.as_str(), lost[0].events), ("page", 1), "{lost:?}");
    app.post_until_answered(USAGE, "lost", usage).await.expect(201);
    wait_for("the repeat has made it good", Duration::from_secs(30), async || {
        app.app().ledger.lost_units().await.ok()?.is_empty().then_some(())
    })
    .await;
    writer.stop().await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_instance_that_only_books_learns_of_new_epochs_and_goes_on_publishing_its_positions() {
    let mut app = an_app().without_writer().start().await;
    with_limits(&app).await;
    let writer = app.another_instance_with(&[Role::Writer]).await;
    assert_eq!(use_pages(&app, "before", "1").await, (201, false));
    app.redis.restart().unwrap();
    assert_eq!(use_pages(&app, "after", "1").await, (201, false));
    wait_for("positions of the new epoch are published", Duration::from_secs(30), async || {
        let standings = app.app().gate.look(|| app.clock.now_ms()).await.ok()?;
        let new: Vec<_> = standings.iter().filter(|standing| standing.last.epoch.0 >= 2).collect();
        (!new.is_empty() && new.iter().all(|standing| standing.waiting() == 0)).then_some(())
    })
    .await;
    writer.stop().await;
    app.finish().await;
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().flatten() {
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// Records usage, again until it is decided: the status, and whether it was a replay.
async fn use_pages(app: &TestApp, key: &str, amount: &str) -> (u16, bool) {
    let body = pages(amount).with("ack", "ledger");
    wait_for("the call is answered", Duration::from_secs(30), async || {
        let answer = app.post_keyed(USAGE, key, body.clone()).await;
        (answer.status < 500).then_some((answer.status, answer.body["replayed"] == true))
    })
    .await
}

/// What a promoted replica that lagged, or a server restored from a copy, looks like to the service.
#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_comes_back_as_it_was_earlier_counts_nothing_twice_and_forgets_nothing_booked() {
    let mut app = spawn_app().await;
    with_limits(&app).await;
    assert_eq!(use_pages(&app, "early", "10").await, (201, false));
    app.redis.kill9().unwrap();
    let (kept, files) = (directory(), app.redis.directory().join("appendonlydir"));
    copy(&files, kept.path());
    app.redis.restart().unwrap();
    assert_eq!(use_pages(&app, "late", "20").await, (201, false));
    assert_eq!(use_pages(&app, "early", "10").await, (200, true));
    let hold = app.post_keyed(RESERVATIONS, "held", reserve(30)).await.expect(201);
    app.drained().await;

    app.redis.kill9().unwrap();
    std::fs::remove_dir_all(&files).unwrap();
    copy(kept.path(), &files);
    app.redis.restart().unwrap();
    assert_eq!(use_pages(&app, "late", "20").await, (200, true), "the copy never knew it, the ledger does");
    assert_eq!(use_pages(&app, "early", "10").await, (200, true));
    assert_eq!(use_pages(&app, "too much", "31").await.0, 429, "60 of 90 are used or held");
    let held = app.post_keyed(RESERVATIONS, "held", reserve(30)).await.expect(200);
    assert_eq!(held.text("/id"), hold.text("/id"));
    app.consume(hold.text("/id"), "30").await.expect(200);
    assert_eq!(use_pages(&app, "rest", "30").await, (201, false));
    app.finish().await;
}

/// How many of the database's sessions wait for a lock.
async fn waiting_for_locks(app: &TestApp) -> usize {
    let waiting =
        "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
    rows(&app.database, waiting).await.len()
}

#[tokio::test(flavor = "multi_thread")]
async fn events_that_a_writer_holds_when_memory_is_lost_are_in_the_restored_counters_or_never_booked() {
    let app = spawn_app().await;
    with_limits(&app).await;
    assert_eq!(use_pages(&app, "booked", "10").await, (201, false));
    app.drained().await;
    let (client, connection) =
        tokio_postgres::connect(&app.database.url, tokio_postgres::NoTls).await.unwrap();
    let connection = tokio::spawn(connection);
    client.batch_execute("BEGIN; SELECT FROM cursors FOR UPDATE").await.unwrap();
    let in_hand = pages("20");
    app.post_keyed(USAGE, "in hand", in_hand).await.expect(201);
    wait_for("the writer waits to book it", Duration::from_secs(30), async || {
        (waiting_for_locks(&app).await >= 1).then_some(())
    })
    .await;
    app.redis.flush().await;
    let let_go = async {
        wait_for("the tenant is restored, or its restore waits", Duration::from_secs(30), async || {
            (is_warm(&app).await || waiting_for_locks(&app).await >= 2).then_some(())
        })
        .await;
        client.batch_execute("ROLLBACK").await.unwrap();
    };
    let (after, ()) = tokio::join!(use_pages(&app, "after", "1"), let_go);
    assert_eq!(after, (201, false));
    drop(client);
    connection.await.unwrap().unwrap();
    app.finish().await;
}

/// Whether the gate has the tenant's counters.
async fn is_warm(app: &TestApp) -> bool {
    let mut connection = app.redis.connection().await;
    let keys: Vec<String> =
        redis::cmd("KEYS").arg("tg1:*:state:acme").query_async(&mut connection).await.unwrap();
    !keys.is_empty()
}
