//! What changes a quota while it is used, at two instances: how long it takes until both grant what is booked.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::ledger::rows;
use crate::support::app::*;
use crate::support::wait::wait_for;

/// How soon a change counts everywhere.
const PROMISED: Duration = Duration::from_secs(1);
/// How much longer it may take where other tests keep two cores busy and nothing is optimised.
const BUSY: u32 = 5;
/// How many use the quota at each instance.
const CALLERS: usize = 2;
const CAPACITY: &str =
    "SELECT trim_scale(capacity)::text AS c FROM quota_capacities WHERE period_start = '2026-03-01'";

/// Two instances whose callers use pages of the same tenant until it is over.
struct Used<'a> {
    app: &'a TestApp,
    callers: [Caller; 2],
    is_over: AtomicBool,
    uses: AtomicUsize,
}

impl Used<'_> {
    /// Uses a page again and again. No use is refused: those that cannot be answered yet are repeated.
    async fn uses(&self, caller: &Caller, name: usize) {
        let mut number = 0;
        while !self.is_over.load(Ordering::Relaxed) {
            let key = format!("{name}-{number}");
            let answer = caller.post_until_answered(USAGE, &key, pages(1)).await;
            assert!(matches!(answer.status, 200 | 201), "{key}: {answer:?}");
            self.uses.fetch_add(1, Ordering::Relaxed);
            number += 1;
        }
    }

    /// Waits until both instances and the books grant so many pages, which takes no longer than is promised since
    /// `answered`.
    async fn reaches(&self, what: &str, granted: &str, answered: Instant) {
        let uses_before = self.uses.load(Ordering::Relaxed);
        let everywhere = async || {
            for caller in &self.callers {
                let quota = caller.get("/v1/tenants/acme/quota").await;
                if quota.status != 200
                    || quota.text("/quotas/0/granted") != granted
                    || quota.body["source"] != "gate"
                {
                    return None;
                }
            }
            Some(answered.elapsed())
        };
        let took = wait_for(what, PROMISED * BUSY * 4, everywhere).await;
        println!("{what}: {took:?}");
        assert!(took < PROMISED * BUSY, "{what} took {took:?}");
        assert_eq!(rows(&self.app.database, CAPACITY).await, [granted], "{what}: the books");
        wait_for("it is used on", PROMISED * BUSY * 4, async || {
            (self.uses.load(Ordering::Relaxed) > uses_before + 2 * CALLERS).then_some(())
        })
        .await;
    }

    async fn changes(&self, round: usize) {
        self.app.redis.flush().await;
        self.reaches("FLUSHALL", "1000000", Instant::now()).await;
        let grant = json!({
            "tenant": "acme", "meter": "page", "amount": "500", "kind": "promotional", "priority": 90,
            "expires_at": "2026-04-01T00:00:00Z"
        });
        let made =
            self.app.post_until_answered("/v1/admin/grants", &round.to_string(), grant).await.expect(201);
        self.reaches("a grant", "1000500", Instant::now()).await;
        let void = format!("/v1/admin/grants/{}/void", made.text("/id"));
        until_answered(|| self.app.post(&void, json!({}))).await.expect(200);
        self.reaches("a void", "1000000", Instant::now()).await;
        for (what, plan, granted) in
            [("a higher plan", "high", "2000000"), ("a lower plan", "plan", "1000000")]
        {
            self.app.define("tenants/acme", json!({ "plan": plan, "plan_from": "now" })).await;
            self.reaches(what, granted, Instant::now()).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_changes_a_quota_that_is_used_counts_at_both_instances_within_a_second() {
    let app = an_app().at("2026-03-10T12:00:00Z").start().await;
    app.with_plan(json!([]), json!([quota_of("1000000")])).await;
    app.define("plans/high", json!({ "quotas": [quota_of("2000000")] })).await;
    let other = app.another_instance().await;
    let callers = [app.caller(), app.caller().at(other.url())];
    let used = Used { app: &app, callers, is_over: AtomicBool::new(false), uses: AtomicUsize::new(0) };
    let uses = (0..2 * CALLERS).map(|name| used.uses(&used.callers[name % 2], name));
    let changes = async {
        for round in 0..3 {
            used.changes(round).await;
        }
        used.is_over.store(true, Ordering::Relaxed);
    };
    futures::join!(futures::future::join_all(uses), changes);
    other.stop().await;
    app.finish().await;
}
