//! Two services on the same servers, under load: a change at one reaches the other, and when one is killed the other
//! goes on with everything.

use std::time::{Duration, Instant};

use futures::future::join_all;
use reqwest::Method;
use serde_json::{Value, json};

use super::load::{Load, names, prepare};
use super::{Callers, KEY, PATIENCE, Storm, sized};
use crate::support::calls::day_of;
use crate::support::wait::wait_for;

const TENANTS: u64 = 8;
const CALLERS: u64 = 16;
/// A limit and a quota of each tenant.
const COUNTERS: usize = 2;
/// What changes on one is in force on both after so long.
const NEWS_MAX: Duration = Duration::from_secs(1);
/// What a killed writer left is booked by another after so long.
const TAKEN_OVER_MAX: Duration = Duration::from_secs(5);

/// Waits until one alone holds leases of the writer, and it is another one than before; answers who.
async fn writer(storm: &Storm, before: Option<&str>) -> String {
    let query =
        "SELECT DISTINCT owner FROM leases WHERE name LIKE 'writer/%' AND expires_at > clock_timestamp()";
    wait_for("one books everything", PATIENCE, async || {
        let [owner] = <[String; 1]>::try_from(storm.rows(query).await).ok()?;
        (before != Some(owner.as_str())).then_some(owner)
    })
    .await
}

/// How long until this is so at both.
async fn at_both(both: &[Callers; 2], what: &str, is_so: impl AsyncFn(&Callers) -> bool) -> Duration {
    let told = Instant::now();
    for caller in both {
        wait_for(what, PATIENCE, async || is_so(caller).await.then_some(())).await;
    }
    told.elapsed()
}

async fn capacity_is(caller: &Callers, capacity: &str) -> bool {
    let quota = caller.get("/v1/tenants/watched/quota").await;
    quota.is_some_and(|(status, quota)| status == 200 && quota["limits"][0]["capacity"] == capacity)
}

/// Changes a plan, an override and a key at one of them; returns the longest time until both had a change.
async fn news(both: &[Callers; 2], round: u64) -> Duration {
    let told = &both[usize::try_from(round % 2).unwrap()];
    let capacity = (1_000 + round).to_string();
    let day = json!([day_of(&capacity)]);
    told.insist(Method::PUT, "/v1/admin/plans/watched", None, json!({ "limits": day })).await;
    if round == 0 {
        told.insist(Method::PUT, "/v1/admin/tenants/watched", None, json!({ "plan": "watched" })).await;
    }
    let plan = at_both(both, "a plan is in force", async |caller| capacity_is(caller, &capacity).await).await;
    let wider = (2_000 + round).to_string();
    let body = json!({ "tenant": "watched", "level": "tenant", "limit": "day", "capacity": wider, "reason": "test" });
    let path = format!("/v1/admin/overrides/wider-{round}");
    told.insist(Method::PUT, &path, None, body).await;
    let override_ =
        at_both(both, "an override is in force", async |caller| capacity_is(caller, &wider).await).await;
    // Out of the way of the next plan.
    told.insist(Method::DELETE, &format!("{path}?tenant=watched"), None, Value::Null).await;
    at_both(both, "an override has gone", async |caller| capacity_is(caller, &capacity).await).await;

    let body = json!({ "name": format!("worker-{round}"), "role": "service" });
    let made = told.insist(Method::POST, "/v1/admin/keys", Some(&format!("key-{round}")), body).await;
    let status_with = async |caller: &Callers| {
        let caller = caller.with_key(made["key"].as_str().unwrap());
        caller.get("/v1/tenants/watched/quota").await.map(|(status, _)| status)
    };
    at_both(both, "a key is known", async |caller| status_with(caller).await == Some(200)).await;
    told.insist(
        Method::DELETE,
        &format!("/v1/admin/keys/{}", made["id"].as_str().unwrap()),
        None,
        Value::Null,
    )
    .await;
    let key = at_both(both, "a key is refused", async |caller| status_with(caller).await == Some(401)).await;
    plan.max(override_).max(key)
}

/// Waits until the other has booked everything: a later event of each partition is booked.
async fn taken_over(caller: &Callers, round: u64) -> Duration {
    let killed = Instant::now();
    let key = format!("after-{round}");
    join_all(names(TENANTS).into_iter().map(|tenant| {
        let (caller, key) = (caller.clone(), key.clone());
        async move {
            let usage = json!({ "tenant": tenant, "meter": "page", "amount": "1", "ack": "ledger" });
            caller.insist(Method::POST, "/v1/usage", Some(&key), usage).await;
        }
    }))
    .await;
    killed.elapsed()
}

#[tokio::test(flavor = "multi_thread")]
async fn two_services_share_keys_and_policy_and_a_killed_one_is_replaced_by_the_other() {
    let mut storm = Storm::begin(Vec::new()).await;
    prepare(&storm, TENANTS).await;
    let mut books = writer(&storm, None).await;
    let mut other = storm.serve("127.0.0.1:0").await;
    let both = [storm.caller(), Callers::of(KEY, [other.address.clone()])];
    let anywhere = Callers::of(KEY, [storm.address().to_owned(), other.address.clone()]);
    let elsewhere = Callers::of(KEY, [other.address.clone(), storm.address().to_owned()]);
    let load = Load::start(&[anywhere.clone(), elsewhere], CALLERS, TENANTS, "gate");
    load.goes_on(CALLERS).await;

    let mut slowest_news = Duration::ZERO;
    for round in 0..sized(20, 2) {
        slowest_news = slowest_news.max(news(&both, round).await);
    }
    let rounds = sized(20, 1);
    let mut slowest_over = Duration::ZERO;
    for round in 0..rounds {
        // The one that has run for longer books, unless it was late and the other stepped in for it.
        let mut killed = storm.service.replace(other).unwrap();
        killed.kill();
        slowest_over = slowest_over.max(taken_over(&storm.caller(), round).await);
        books = writer(&storm, Some(&books)).await;
        other = storm.serve(&killed.address).await;
        load.goes_on(CALLERS).await;
    }
    let done = load.end().await;
    eprintln!(
        "news in force on both after {slowest_news:?} at most, taken over after {slowest_over:?} at most"
    );
    let after = rounds * TENANTS;
    storm.books_hold("page", done.units() + after).await;
    done.repeat(&anywhere).await;
    storm.books_hold("page", done.units() + after).await;
    storm.verify(&names(TENANTS), COUNTERS).await;
    assert!(slowest_news < sized(NEWS_MAX, PATIENCE), "{slowest_news:?}");
    assert!(slowest_over < sized(TAKEN_OVER_MAX, PATIENCE), "{slowest_over:?}");
}
