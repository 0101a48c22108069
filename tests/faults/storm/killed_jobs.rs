//! Two instances, of which the one that runs the jobs is a process that is killed (SIGKILL) at one of its steps, each
//! month at another: the other instance ends what it began, and each due row is done once. A storm takes every step in
//! turn, a run of the tests a few of them; `TOLLGATE_STORM_SEED` repeats the choice.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Stdio;
use std::time::Duration;

use jiff::ToSpan;
use jiff::civil::{Date, date};
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};
use tollgate::app::Role;
use tollgate::ledger::JobState;

use super::sized;
use crate::http::adjustments::ADJUSTMENTS;
use crate::http::events::{event, send};
use crate::jobs::continued_grants::GRANTS;
use crate::ledger::{as_owner, rows};
use crate::support::app::*;
use crate::support::books::Books;
use crate::support::postgres_wire::{Moment, Steps, Watched};
use crate::support::process::from_environment;
use crate::support::receiver::Receiver;
use crate::support::wait::wait_for;

const FIRST: Date = date(2026, 1, 1);
const TENANTS: [&str; 3] = ["rolls", "exceeds", "holds"];
/// In how many months a run of the tests kills the process, ...
const KILLS: usize = 3;
/// ... at one of these steps, which it always takes.
const FIRST_STEPS: Steps = Steps { commits: 100, ends: 100 };
/// In how many months a moment is tried, as no month has as many steps as another.
const MONTHS_OF_A_MOMENT: usize = 3;
/// The jobs that a storm cuts: they have something to do each month.
const CUT: [&str; 6] = ["close", "grants", "notices", "periods", "statements", "webhooks"];
const UNDER_WAY: &str = "SELECT job FROM job_runs WHERE finished_at IS NULL ORDER BY job";
/// The deliveries: their ids, whether they were made, and what they say.
const SENT: &str = "SELECT id, state = 'delivered' AS made, event, tenant, meter, percent, \
    to_char(period_start AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"') AS period \
    FROM webhook_deliveries ORDER BY created_at";
/// What the killed one held ends by itself after some seconds.
const LEASES_END: &str = "UPDATE job_runs SET lease_until = now() WHERE finished_at IS NULL; \
    UPDATE leases SET expires_at = now() WHERE name NOT LIKE 'writer/%'";
const TAKEN_OVER: &str = "SELECT count(*) FROM job_runs WHERE fence > 1";

/// An installation, and what its tenants hold over the end of each month.
struct Installation {
    app: TestApp,
    receiver: Receiver,
    held: Option<String>,
    /// The jobs that were under way when a process was killed.
    cut: BTreeSet<String>,
}

fn plan(included: &str) -> Value {
    let quota = quota_of(included).with("mode", "soft").with("max_rollover", "40").with("min_rollover", "5");
    let quota = quota.with("rollover_periods", 2).with("reroll", true).with("preserve_overage", true);
    let price = json!({
        "meter": "page", "model": "per_unit", "currency": "EUR", "unit": "0.02", "effective_from": "2025-12-01"
    });
    json!({ "quotas": [quota], "prices": [price] })
}

/// Noon of the day before the month after this one begins.
fn last_noon(month: Date) -> String {
    format!("{}T12:00:00Z", month.last_of_month())
}

impl Installation {
    async fn begin() -> Self {
        let app = an_app().at("2025-12-31T12:00:00Z").without_jobs();
        let app = app.with("webhooks.allowed_networks", "127.0.0.1").start().await;
        app.with_plan(json!([]), json!([])).await;
        for (name, included) in [("plan", "100"), ("large", "160")] {
            app.define(&format!("plans/{name}"), plan(included)).await;
        }
        for tenant in TENANTS {
            app.define(&format!("tenants/{tenant}"), json!({ "plan": "plan" })).await;
        }
        let receiver = Receiver::start().await;
        let events = ["quota.threshold", "quota.forecast", "quota.resolved"];
        let webhook = json!({ "url": receiver.url("127.0.0.1"), "events": events });
        app.post("/v1/admin/webhooks", webhook).await.expect(201);
        Self { app, receiver, held: None, cut: BTreeSet::new() }
    }

    /// What happens in a month: something for each job at its end.
    async fn calls(&mut self, number: usize, month: Date) {
        let app = &self.app;
        let (before, next) = (month.checked_sub(1.month()).unwrap(), month.checked_add(1.month()).unwrap());
        app.move_clock(&format!("{}T12:00:00Z", month.with().day(10).build().unwrap())).await;
        if let Some(id) = self.held.take() {
            app.consume(&id, "6").await.expect(200);
        }
        for (tenant, amount) in TENANTS.into_iter().zip(["20", "170", "30"]) {
            let key = format!("{tenant}-{number}");
            app.post_keyed(USAGE, &key, pages(amount).of(tenant)).await.expect(201);
        }
        let ends = |month: Date| format!("{month}T00:00:00Z");
        let goes_on = pages("30").of("rolls").with("kind", "promotional").with("priority", 60);
        let goes_on = goes_on.with("expires_at", ends(next.checked_add(1.month()).unwrap()));
        app.post_keyed(GRANTS, &format!("goes on {number}"), goes_on).await.expect(201);
        let sold = pages("30").of("rolls").with("kind", "paid").with("paid_amount", "5.00");
        let sold = sold.with("currency", "EUR").with("priority", 1).with("expires_at", ends(next));
        app.post_keyed(GRANTS, &format!("sold {number}"), sold).await.expect(201);
        if number > 0 {
            let at = format!("{}T10:00:00Z", before.with().day(20).build().unwrap());
            let mut late = event(&format!("late {number}"), 3, Some(&at));
            late["data"]["tenant"] = json!("rolls");
            send(app, &late).await;
        }
        if number > 1 {
            let closed = before.checked_sub(1.month()).unwrap();
            let at = format!("{}T12:00:00Z", closed.with().day(10).build().unwrap());
            let less = pages("-5").of("exceeds").with("effect", "usage").with("happened_at", at);
            let less = less.with("reason", "counted twice");
            app.post_keyed(ADJUSTMENTS, &format!("less {number}"), less).await.expect(201);
        }
        if number % 2 == 1 {
            let asked = json!({ "plan": if number % 4 == 1 { "large" } else { "plan" } });
            let asked = app.post("/v1/tenants/holds/upgrade-requests", asked).await.expect(201);
            let approve = format!("/v1/admin/upgrade-requests/{}/approve", asked.text("/id"));
            app.post(&approve, json!({ "effective": "next_period" })).await.expect(200);
        }
        app.move_clock(&format!("{}T11:00:00Z", month.last_of_month())).await;
        self.held = Some(app.held(pages("10").of("holds").lasting(86_400)).await);
        app.move_clock(&last_noon(month)).await;
        app.drained().await;
    }

    /// Whether no job is due or under way.
    async fn is_done(&self) -> bool {
        let jobs = self.app.app().ledger.jobs().await.unwrap();
        let now_ms = self.app.clock.now_ms();
        let is_over = |job: &JobState| {
            let has_ended = job.last.as_ref().is_some_and(|last| last.succeeded == Some(true));
            has_ended && job.next_due_ms > now_ms && !job.is_asked_for
        };
        !jobs.is_empty() && jobs.iter().all(is_over)
    }

    /// A process runs the jobs until it has ended them or is killed.
    async fn process(&mut self, moment: Moment) -> Steps {
        let mut command = self.app.serving("jobs", "127.0.0.1:0".to_owned())();
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let process = Watched::start(command, &self.app.database, moment).await;
        wait_for("the jobs end, or the process", Duration::from_secs(60), async || {
            (process.is_over() || self.is_done().await).then_some(())
        })
        .await;
        let steps = process.end().await;
        let cut = rows(&self.app.database, UNDER_WAY).await;
        eprintln!("{moment:?} of {steps:?}: cut {cut:?}");
        self.cut.extend(cut);
        as_owner(&self.app.database, LEASES_END).await.unwrap();
        steps
    }

    /// Another instance runs the jobs to their end.
    async fn another(&self) {
        let other = self.app.another_instance_with(&[Role::Jobs]).await;
        wait_for("the jobs have ended", Duration::from_secs(60), async || self.is_done().await.then_some(()))
            .await;
        other.stop().await;
    }

    /// The receiver got each delivery that the books say was made. What it is about came under one id and with one
    /// body, though a process that is killed before it notes a delivery has it sent again.
    async fn check_received(&self, kills: usize) {
        let (mut bodies, mut ids) = (BTreeMap::<_, Vec<_>>::new(), BTreeMap::<_, BTreeSet<_>>::new());
        for one in self.receiver.received() {
            ids.entry(words(&one.body())).or_default().insert(one.id());
            bodies.entry(one.id()).or_default().push(one.body());
        }
        assert!(ids.values().all(|ids| ids.len() == 1), "told under several ids: {ids:#?}");
        for row in rows(&self.app.database, SENT).await {
            let (id, row) = row.split_once(' ').unwrap();
            let (made, said) = row.split_once(' ').unwrap();
            let got = bodies.remove(id).unwrap_or_default();
            assert!(!got.is_empty() || made == "false", "{id} is noted, and never came: {said}");
            assert!(got.len() <= 1 + kills, "{id} came {} times: {said}", got.len());
            assert!(got.windows(2).all(|two| two[0] == two[1]), "{id} says one thing and another: {got:?}");
            assert!(got.iter().all(|body| words(body) == said), "{got:?} instead of {said}");
        }
    }

    /// The books once each month until `month` is closed, and how many runs were taken over. Processes were killed so
    /// often.
    async fn books(mut self, month: Date, kills: usize) -> (Books, u64) {
        if let Some(id) = self.held.take() {
            self.app.release(&id).await.expect(200);
        }
        // What a run has closed is billed by the next one, if its statements were looked for before.
        for days in [40, 41, 42] {
            let noon = month.checked_add(days.days()).unwrap();
            self.app.move_clock(&format!("{noon}T12:00:00Z")).await;
            self.another().await;
            self.app.drained().await;
        }
        self.check_received(kills).await;
        let books = Books::of(&self.app.database).await;
        let taken_over = rows(&self.app.database, TAKEN_OVER).await[0].parse().unwrap();
        self.app.finish().await;
        (books, taken_over)
    }
}

/// What a delivery is about.
fn words(body: &Value) -> String {
    let data = &body["data"];
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let percent = data["percent"].as_u64().unwrap_or_default().to_string();
    [text(&body["type"]), text(&data["tenant"]), text(&data["meter"]), percent, text(&data["period_start"])]
        .join(" ")
}

/// The same months, with and without kills.
struct Months {
    killed: Installation,
    whole: Installation,
    number: usize,
}

impl Months {
    fn month(&self) -> Date {
        FIRST.checked_add(i64::try_from(self.number).unwrap().months()).unwrap()
    }

    /// A month at whose end a process that runs the jobs is killed at this moment, if there is one. Returns what it
    /// did.
    async fn go_on(&mut self, moment: Option<Moment>) -> Steps {
        let (number, month) = (self.number, self.month());
        let Self { killed, whole, .. } = self;
        let killed = async {
            killed.calls(number, month).await;
            let mut steps = Steps::default();
            if let Some(moment) = moment {
                steps = killed.process(moment).await;
            }
            killed.another().await;
            steps
        };
        let whole = async {
            whole.calls(number, month).await;
            whole.another().await;
        };
        let (steps, ()) = tokio::join!(killed, whole);
        self.number += 1;
        steps
    }

    /// Kills a process at this moment, in the first month that reaches it.
    async fn kill_at(&mut self, moment: Moment) {
        for _ in 0..MONTHS_OF_A_MOMENT {
            if self.go_on(Some(moment)).await.reach(moment) {
                return;
            }
        }
        panic!("{moment:?} was not reached in {MONTHS_OF_A_MOMENT} months");
    }
}

/// The moments of a storm: every one at which a process that does so much can be killed.
fn moments(steps: Steps) -> Vec<Moment> {
    let before = (1..=steps.commits).map(Moment::BeforeCommit);
    before.chain((1..=steps.ends).map(Moment::AfterEnd)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn wherever_the_one_that_runs_the_jobs_is_killed_the_other_ends_them_and_each_due_row_is_done_once() {
    let (killed, whole) = tokio::join!(Installation::begin(), Installation::begin());
    let mut months = Months { killed, whole, number: 0 };
    // From the third month on there is something of each kind.
    for _ in 0..2 {
        months.go_on(None).await;
    }
    let steps = match sized(true, false) {
        true => months.go_on(Some(Moment::Never)).await.of_both(months.go_on(Some(Moment::Never)).await),
        false => FIRST_STEPS,
    };
    let seed = from_environment("TOLLGATE_STORM_SEED").unwrap_or_else(|| rand::rng().next_u64() >> 1);
    let mut moments = moments(steps);
    moments.shuffle(&mut StdRng::seed_from_u64(seed));
    moments.truncate(sized(usize::MAX, KILLS));
    eprintln!("TOLLGATE_STORM_SEED={seed}: killed {moments:?}");
    let kills = moments.len();
    for moment in moments {
        months.kill_at(moment).await;
    }
    let last = months.month();
    let cut = months.killed.cut.clone();
    assert!(
        sized(false, true) || CUT.iter().all(|job| cut.contains(*job)),
        "seed {seed}: only {cut:?} were cut"
    );
    let ((found, taken_over), (expected, _)) =
        tokio::join!(months.killed.books(last, kills), months.whole.books(last, 0));
    found.equal(&expected, &format!("seed {seed}"));
    assert!(taken_over > 0, "seed {seed}: no run was taken over");
    let entries = expected.entries.join("\n");
    for word in
        ["rolled_in", "overage", "repaid", "carried_in", "adjusted", "correction", "breakage", "revenue"]
    {
        assert!(entries.contains(word), "no {word}: {entries}");
    }
    assert!(expected.statements.iter().any(|document| document.contains("credit_note")));
    assert!(!expected.continued.is_empty() && !expected.burns.is_empty() && !expected.deliveries.is_empty());
}
