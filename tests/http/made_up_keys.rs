//! Made-up keys: who tries them waits, and other callers do not.

use std::time::{Duration, Instant};

use futures::future::join_all;
use reqwest::Method;
use tokio_postgres::{Client, NoTls};

use crate::support::app::*;
use crate::support::wait::wait_for;

const PATIENCE: Duration = Duration::from_secs(20);

async fn connect(app: &TestApp) -> Client {
    let (client, connection) = tokio_postgres::connect(&app.database.url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// How many of the database's connections wait for a lock.
async fn blocked(client: &Client) -> i64 {
    let query = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
    client.query_one(query, &[]).await.unwrap().get(0)
}

/// A warm tenant with room for everything that a test uses.
async fn warm(app: &TestApp) {
    app.with_day_of("1000").await;
    let page = pages("1").with("ack", "ledger");
    app.post_until_answered(USAGE, "warm", page).await.expect(201);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_with_too_many_bad_keys_waits_without_a_question_to_postgres() {
    let app = an_app().on_own_postgres().start().await;
    let guesser = app.caller().at_address([127, 0, 0, 8]);
    let guess = |key: String| {
        let guesser = guesser.with_key(Some(&key));
        async move { guesser.get("/v1/admin/plans").await }
    };
    for _ in 0..110 {
        guess("malformed".into()).await;
    }
    let frozen = app.database.freeze();
    let began = Instant::now();
    let refused = join_all((0..5).map(|number| guess(format!("tg_{number}_guess")))).await;
    let waits = refused.iter().filter(|answer| answer.status == 429).count();
    assert!(waits >= 3, "one a second is heard: {refused:?}");
    if waits == 5 {
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    }
    drop(frozen);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn made_up_keys_from_many_addresses_share_one_connection_and_the_books_go_on() {
    let app = spawn_app().await;
    warm(&app).await;
    let (mut locking, looking) = (connect(&app).await, connect(&app).await);
    let locked = locking.transaction().await.unwrap();
    locked.batch_execute("LOCK TABLE api_keys IN ACCESS EXCLUSIVE MODE").await.unwrap();
    let guesses = (1..=40).map(|host| {
        let guesser = app.caller().at_address([127, 0, 1, host]);
        tokio::spawn(async move {
            let key = format!("tg_{host}_guess");
            guesser.with_key(Some(&key)).get("/v1/admin/plans").await.status
        })
    });
    let guesses: Vec<_> = guesses.collect();
    wait_for("a guess is looked up", PATIENCE, async || (blocked(&looking).await > 0).then_some(())).await;
    for number in 0..20 {
        let page = pages("1").with("ack", "ledger");
        app.post_keyed(USAGE, &format!("page-{number}"), page).await.expect(201);
        assert!(blocked(&looking).await <= 1, "all guesses share one look");
    }
    locked.rollback().await.unwrap();
    for status in join_all(guesses).await {
        assert!(matches!(status.unwrap(), 401 | 503));
    }
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_writer_books_although_every_other_connection_is_taken() {
    let app = spawn_app().await;
    warm(&app).await;
    let (mut locking, looking) = (connect(&app).await, connect(&app).await);
    let booked =
        async || -> i64 { looking.query_one("SELECT count(*) FROM entries", &[]).await.unwrap().get(0) };
    let before = booked().await;
    let locked = locking.transaction().await.unwrap();
    locked.batch_execute("LOCK TABLE policy_objects IN ACCESS EXCLUSIVE MODE").await.unwrap();
    let readers = (0..20).map(|_| {
        let admin = app.caller();
        tokio::spawn(async move { admin.get("/v1/admin/plans").await.status })
    });
    let readers: Vec<_> = readers.collect();
    wait_for("every connection waits", PATIENCE, async || (blocked(&looking).await >= 6).then_some(())).await;
    let page = pages("1");
    app.post_keyed(USAGE, "page", page).await.expect(201);
    wait_for("it is booked", PATIENCE, async || (booked().await > before).then_some(())).await;
    assert!(blocked(&looking).await >= 1, "readers still wait");
    locked.rollback().await.unwrap();
    join_all(readers).await;
    app.finish().await;
}

#[tokio::test]
async fn a_new_key_is_good_on_another_instance_at_its_first_call() {
    let app = spawn_app().await;
    let second = app.another_instance().await;
    let here = app.caller();
    for _ in 0..10 {
        let made = here.make_key("service", None).await;
        let answer = made.at(second.url()).request(Method::GET, "/v1/tenants/nobody/quota");
        here.send(answer).await.is_problem(404, "not_found");
    }
    second.stop().await;
    app.finish().await;
}
