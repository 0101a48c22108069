//! An instance of this version goes on with what a former one wrote: `upgrade/gate.txt` has the contents of its Redis,
//! a command for each key with bytes beyond ASCII as `\xNN`, and `upgrade/ledger.sql` is a dump of its Postgres. It
//! stopped at noon, while Postgres was away: its last reservation and a job of its were not booked. Its records have
//! layout 1.

use rstest::rstest;
use serde_json::json;
use tollgate::ledger::Ledger;

use crate::ledger::as_owner;
use crate::support::app::*;
use crate::support::services::{self, TestDatabase, TestRedis};

const GATE: &str = include_str!("upgrade/gate.txt");
const LEDGER: &str = include_str!("upgrade/ledger.sql");
const SECRET: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
const ADMIN_KEY: &str = "tg_4fa59c57f6ca_e2efe0421b89d16ac397c044b06acdf902bc564518b42117e8dba57559e49e05";
const NOW: &str = "2026-11-10T12:02:00Z";
/// Holds 4, is not resolved.
const OPEN: &str = "d502e6d0-caae-8439-96e6-8e263b9e2bc0";
/// Held 5, of which 2 are consumed so far.
const PARTLY_CONSUMED: &str = "01a1c554-5200-8ee0-928a-b5473b73bb21";
/// Held 3 and consumed 2.5.
const CONSUMED: &str = "893b2076-d222-8e33-b330-f4f13b56d269";
/// Held 6 and gave them back.
const RELEASED: &str = "175248ac-e9d0-8da2-907a-02ea3b49dbf6";
/// Held 7 until its time was over.
const EXPIRED: &str = "464b02fc-4bc1-8ef0-ab77-c77b3b438131";
/// Consumed 3 without a key; its events are not booked.
const UNBOOKED: &str = "01a1c556-26c0-8d71-bf99-882f3bed258f";

/// The meaning of one word of a command.
fn bytes_of(word: &str) -> Vec<u8> {
    let (mut rest, mut bytes) = (word, Vec::new());
    while let Some((before, after)) = rest.split_once("\\x") {
        bytes.extend_from_slice(before.as_bytes());
        bytes.push(u8::from_str_radix(&after[..2], 16).unwrap());
        rest = &after[2..];
    }
    bytes.extend_from_slice(rest.as_bytes());
    bytes
}

async fn former_gate() -> TestRedis {
    let redis = services::redis();
    let mut connection = redis.connection().await;
    for command in GATE.lines() {
        let mut words = command.split(' ');
        let mut call = redis::cmd(words.next().unwrap());
        words.for_each(|word| {
            call.arg(bytes_of(word));
        });
        call.exec_async(&mut connection).await.unwrap();
    }
    redis
}

async fn former_ledger() -> TestDatabase {
    // The roles that a dump names are the server's: any migrated database has made them.
    drop(database().await);
    let ledger = services::empty_database().await;
    as_owner(&ledger, LEDGER).await.unwrap();
    let url = ledger.url.clone();
    tokio::task::spawn_blocking(move || {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        runtime.unwrap().block_on(Ledger::migrate(&url)).unwrap();
    })
    .await
    .unwrap();
    ledger
}

/// The epochs as issued to this very process, as if the servers had run on while the service was replaced.
async fn as_issued_to(redis: &TestRedis, ledger: &TestDatabase) {
    let told: String =
        redis::cmd("INFO").arg("server").query_async(&mut redis.connection().await).await.unwrap();
    let run_id = told.lines().find_map(|line| line.strip_prefix("run_id:")).unwrap().trim();
    as_owner(ledger, &format!("UPDATE epochs SET run_id = '{run_id}'")).await.unwrap();
}

/// What the tenant's month and hour, and the user's day, have consumed and hold.
async fn counted(app: &TestApp) -> Vec<(String, String)> {
    let read = app.get("/v1/tenants/acme/quota?subject=ada&kind=user").await.expect(200);
    let of = |at: &str| {
        (read.text(&format!("{at}/consumed")).to_owned(), read.text(&format!("{at}/reserved")).to_owned())
    };
    ["/quotas/0", "/limits/0", "/limits/1"].map(of).into()
}

fn each(figures: [(&str, &str); 3]) -> Vec<(String, String)> {
    figures.map(|(consumed, reserved)| (consumed.to_owned(), reserved.to_owned())).into()
}

#[rstest]
#[case::while_the_servers_run_on(true)]
#[case::together_with_a_restart_of_redis(false)]
#[tokio::test(flavor = "multi_thread")]
async fn what_a_former_version_wrote_is_counted_repeated_resolved_and_verified(#[case] same_redis: bool) {
    let (redis, ledger) = (former_gate().await, former_ledger().await);
    if same_redis {
        as_issued_to(&redis, &ledger).await;
    }
    let former =
        an_app().at(NOW).with("installation.secret", SECRET).with("gate.partitions", 64).known_by(ADMIN_KEY);
    let app = former.start_on(redis, ledger).await;
    assert_eq!(counted(&app).await, each([("8.5", "9"), ("8.5", "9"), ("5.5", "9")]));

    let held = |amount: &str| pages(amount).with("subjects", json!({ "user": "ada" })).lasting(7200);
    let status_of = async |id: &str| {
        app.get(&format!("{RESERVATIONS}/{id}")).await.expect(200).text("/status").to_owned()
    };
    for (id, status) in [
        (OPEN, "reserved"),
        (PARTLY_CONSUMED, "reserved"),
        (CONSUMED, "consumed"),
        (RELEASED, "released"),
        (EXPIRED, "expired"),
        (UNBOOKED, "consumed"),
    ] {
        assert_eq!(status_of(id).await, status, "{id}");
    }
    for (key, amount) in [("open", "4"), ("unbooked", "2")] {
        let repeat = app.post_keyed(RESERVATIONS, key, held(amount)).await.expect(200);
        assert!(repeat.body["replayed"] == true, "{key}");
    }
    let done = pages("3").with("subjects", json!({ "user": "ada" }));
    let repeat = app.post_keyed(RESERVATIONS, "done", done).await.expect(200);
    assert_eq!((repeat.text("/id"), repeat.body["replayed"] == true), (CONSUMED, true));
    app.post_keyed(RESERVATIONS, "open", held("5")).await.expect(422);
    app.consume(CONSUMED, "2.5").await.expect(200);
    app.consume(RELEASED, "1").await.expect(409);

    app.consume(OPEN, "4").await.expect(200);
    app.consume(PARTLY_CONSUMED, "5").await.expect(200);
    let late = app.consume(EXPIRED, "7").await.expect(200);
    assert!(late.body["late"] == true);
    assert_eq!(counted(&app).await, each([("22.5", "2"), ("22.5", "2"), ("19.5", "2")]));
    // The user's day has room for 8.5 more, 2 of which are held.
    app.post(RESERVATIONS, held("9")).await.expect(429);
    app.post(RESERVATIONS, held("8.5")).await.expect(201);
    app.finish().await;
}
