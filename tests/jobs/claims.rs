use std::time::Duration;

use tollgate::domain::ids::{Epoch, Partition};
use tollgate::ledger::Ledger;

use crate::ledger::{ledger, rows};
use crate::support::app::*;
use crate::support::wait::wait_for;

const NOON_MS: i64 = 1_700_000_000_000;
const DAY_MS: i64 = 86_400_000;
const LEASE: Duration = Duration::from_secs(60);

async fn planned(job: &str) -> (crate::support::services::TestDatabase, Ledger) {
    let (database, ledger) = ledger().await;
    ledger.plan_jobs(&[(job, NOON_MS)]).await.unwrap();
    (database, ledger)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_due_run_is_claimed_by_one_however_many_ask() {
    let (database, ledger) = planned("a").await;
    assert_eq!(
        ledger.claim_job(&["a"], "early", LEASE, NOON_MS - 1).await.unwrap(),
        None,
        "it is not due yet"
    );
    let claims = ["one", "two", "three", "four"].map(|owner| ledger.claim_job(&["a"], owner, LEASE, NOON_MS));
    let claimed: Vec<_> =
        futures::future::join_all(claims).await.into_iter().filter_map(Result::unwrap).collect();
    assert_eq!(claimed.len(), 1, "{claimed:?}");
    assert!(ledger.finish_job(&claimed[0], true, "done", NOON_MS + 5).await.unwrap());
    assert_eq!(ledger.claim_job(&["a"], "one", LEASE, NOON_MS).await.unwrap(), None);
    assert!(ledger.claim_job(&["a"], "one", LEASE, NOON_MS + 5).await.unwrap().is_some());
    let runs =
        "SELECT extract(epoch FROM scheduled_for)::bigint AS at, fence, outcome FROM job_runs ORDER BY 1";
    assert_eq!(rows(&database, runs).await, ["1700000000 1 done", "1700000000 1"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn days_that_were_missed_are_made_good_by_one_run() {
    let (_database, ledger) = planned("a").await;
    let now_ms = NOON_MS + 3 * DAY_MS;
    let run = ledger.claim_job(&["a"], "one", LEASE, now_ms).await.unwrap().unwrap();
    assert!(ledger.finish_job(&run, true, "done", now_ms + 60_000).await.unwrap());
    assert_eq!(ledger.claim_job(&["a"], "one", LEASE, now_ms).await.unwrap(), None);
    let state = ledger.jobs().await.unwrap().remove(0);
    assert_eq!((state.next_due_ms, state.last.unwrap().scheduled_for_ms), (now_ms + 60_000, NOON_MS));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_owners_run_is_taken_over_and_its_later_writes_are_refused() {
    let (_database, ledger) = planned("a").await;
    let dead = ledger.claim_job(&["a"], "one", Duration::ZERO, NOON_MS).await.unwrap().unwrap();
    let taken = ledger.claim_job(&["a"], "other", LEASE, NOON_MS).await.unwrap().unwrap();
    assert_eq!((dead.fence, taken.fence), (1, 2));
    assert!(!ledger.renew_job(&dead, LEASE).await.unwrap());
    assert!(!ledger.finish_job(&dead, true, "late", NOON_MS + DAY_MS).await.unwrap());
    assert!(ledger.renew_job(&taken, LEASE).await.unwrap());
    ledger.give_back_jobs("other").await.unwrap();
    let again = ledger.claim_job(&["a"], "third", LEASE, NOON_MS).await.unwrap().unwrap();
    assert_eq!(again.fence, 3, "one that stops gives its runs back");
    assert!(ledger.finish_job(&again, false, "failed", NOON_MS + 1).await.unwrap());
    let last = ledger.jobs().await.unwrap().remove(0).last.unwrap();
    assert_eq!((last.succeeded, last.outcome.as_deref()), (Some(false), Some("failed")));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_epoch_issued_during_a_restore_makes_another_one_due_at_the_same_instant() {
    let (_database, ledger) = planned("restore").await;
    let claim = || ledger.claim_job(&["restore"], "one", LEASE, NOON_MS);
    let run = claim().await.unwrap().unwrap();
    ledger.raise_epochs(&[(Partition::new(0).unwrap(), Epoch(1), Epoch(1))], "node-2").await.unwrap();
    assert_eq!(claim().await.unwrap(), None, "one run at a time");
    assert!(ledger.finish_job(&run, true, "done", NOON_MS + DAY_MS).await.unwrap());
    let again = claim().await.unwrap().unwrap();
    assert!(ledger.finish_job(&again, true, "done", NOON_MS + DAY_MS).await.unwrap());
    assert_eq!(claim().await.unwrap(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_job_runs_at_the_start_and_is_listed_with_its_outcome() {
    let app = spawn_app().await;
    let list = wait_for("every job has run", Duration::from_secs(30), async || {
        let list = app.get("/v1/admin/jobs").await.expect(200).body["data"].clone();
        let jobs = list.as_array().unwrap();
        (jobs.len() == 12 && jobs.iter().all(|job| job["last_run"]["succeeded"] == true)).then_some(list)
    })
    .await;
    let names: Vec<_> = list.as_array().unwrap().iter().map(|job| job["name"].as_str().unwrap()).collect();
    assert_eq!(
        names,
        [
            "close",
            "estimates",
            "grants",
            "keys",
            "notices",
            "partitions",
            "periods",
            "restore",
            "retention",
            "statements",
            "upgrades",
            "webhooks"
        ]
    );
    let first = &list[0];
    assert!(first["next_due"].as_str() > first["last_run"]["scheduled_for"].as_str(), "{first}");
    app.finish().await;
}
