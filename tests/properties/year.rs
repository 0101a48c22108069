//! A simulated year: whenever jobs run, wherever they break off, and whatever comes late, the books end the same.
//!
//! Twenty tenants and three months in every run of the tests; `make year` has a year of a million operations.
//! `TOLLGATE_YEAR_SEED` repeats a run.

mod happening;
mod jobs;

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use jiff::civil::{Date, date};
use jiff::{Timestamp, ToSpan};
use rand::rngs::StdRng;
use rand::{Rng, RngExt, SeedableRng};
use serde_json::{Value, json};
use tollgate::domain::ids::{Partition, TenantId};

use self::happening::{
    CALENDARS, Day, HOLD_FOR_LONG, LARGE, LOWERED, Size, Year, grant_end, next_start, noon, tenant, year,
};
use self::jobs::Jobs;
use crate::http::adjustments::ADJUSTMENTS;
use crate::http::events::{outcomes, send_batch};
use crate::support::app::*;
use crate::support::books::Books;
use crate::support::process::from_environment;

/// What was booked before a seal of keys is booked within this.
const SEALED_WITHIN: Duration = Duration::from_secs(30);
/// So many items has one batch.
const ITEMS: usize = 500;
/// What has waited while no job ran is first closed and billed by so many runs that break off.
const BREAKS_OF_BACKLOG: i64 = 6;
/// On every so many-th day plans include something else.
const PLANS_CHANGE_EVERY: i64 = 5;
/// Nobody moves so shortly before the end of a period: the next one may be open already.
const NOBODY_MOVES_DAYS: i64 = 3;
/// A period is at least so long, so that it is opened before plans change: what a late job opens has what policy says
/// then.
const SHORTEST_DAYS: i64 = PLANS_CHANGE_EVERY + 1;

fn plan(included: usize, unit: &str) -> Value {
    let tiers = json!([{ "up_to": "500", "unit": unit }, { "unit": "0.01" }]);
    let price = json!({
        "meter": "page", "model": "graduated", "currency": "EUR", "tiers": tiers, "effective_from": "2025-12-01"
    });
    let quota = quota_of(&included.to_string())
        .with("mode", "soft")
        .with("max_rollover", "80")
        .with("min_rollover", "10");
    let quota = quota.with("rollover_periods", 2).with("reroll", true).with("preserve_overage", true);
    json!({ "quotas": [quota], "prices": [price], "discounts": [{ "id": "tenth", "percent": "10" }] })
}

/// So many pages of a tenant.
fn amount(of: usize, pages: u32) -> Value {
    json!({ "tenant": tenant(of), "meter": "page", "amount": pages.to_string() })
}

/// One run of a year.
struct Run {
    app: TestApp,
    first: Date,
    /// Where holds expire.
    partitions: Vec<Partition>,
    /// What ends on a day: a reservation, and what of it is consumed, if it is not released.
    ends: BTreeMap<i64, Vec<(String, Option<u32>)>>,
    /// The last grant of each tenant that can be voided.
    grants: BTreeMap<usize, String>,
    /// The plan that each tenant was put on last.
    plans: Vec<&'static str>,
    /// How often somebody has moved.
    moves: usize,
    /// Uses of a tenant on a day: so many times as much is included.
    uses: usize,
    /// Of which tenant use of which day was taken back.
    taken_back: HashSet<(usize, i64)>,
    jobs: Jobs,
}

impl Run {
    async fn start(size: &Size, first: Date) -> Self {
        let start = noon(first, -1).to_string();
        let app = an_app().at(&start).without_jobs().start().await;
        app.with_plan(json!([]), json!([])).await;
        let late = json!({ "unit": "page", "without_limit": "unlimited", "late_within_seconds": 10_000_000 });
        app.define("meters/page", late).await;
        app.define("plans/plan", plan(100 * size.uses, "0.02")).await;
        app.define("plans/large", plan(300 * size.uses, "0.015")).await;
        app.define(&format!("plans/{LOWERED}"), plan(40 * size.uses, "0.03")).await;
        for number in 0..size.tenants {
            let (time_zone, anchor_day) = CALENDARS[number % CALENDARS.len()];
            let body = json!({ "plan": "plan", "time_zone": time_zone, "anchor_day": anchor_day });
            app.define(&format!("tenants/{}", tenant(number)), body).await;
        }
        let partition = |of: usize| app.app().gate.partition_of(&TenantId::parse(&tenant(of)).unwrap());
        let mut partitions: Vec<_> = (0..size.tenants).map(partition).collect();
        partitions.sort_unstable();
        partitions.dedup();
        partitions.retain(|one| HOLD_FOR_LONG.iter().all(|of| partition(*of) != *one));
        let plans = vec!["plan"; size.tenants];
        Self {
            app,
            first,
            partitions,
            ends: BTreeMap::new(),
            grants: BTreeMap::new(),
            plans,
            moves: 0,
            uses: size.uses,
            taken_back: HashSet::new(),
            jobs: Jobs::default(),
        }
    }

    /// Does these calls, each of which is answered with this status, and repeats those that cannot be answered yet.
    /// Returns the ids in the answers.
    async fn batch(&self, items: Vec<Value>, status: u16) -> Vec<String> {
        let (mut ids, mut left) = (vec![String::new(); items.len()], (0..items.len()).collect::<Vec<_>>());
        while !left.is_empty() {
            let mut again = Vec::new();
            for some in left.chunks(ITEMS) {
                let some_items: Vec<_> = some.iter().map(|place| &items[*place]).collect();
                let answer = self.app.post("/v1/batch", json!({ "items": some_items })).await.expect(200);
                for (place, result) in some.iter().zip(answer.body["results"].as_array().unwrap()) {
                    match result["status"] == 503 {
                        true => again.push(*place),
                        false => assert_eq!(result["status"], status, "{} {result}", items[*place]),
                    }
                    ids[*place] = result["body"]["id"].as_str().unwrap_or_default().to_owned();
                }
            }
            left = again;
        }
        ids
    }

    /// An hour before noon of a day: what is due to end ends, and what nobody has ended expires.
    async fn end_holds(&mut self, number: i64) {
        let end = |(place, (id, used)): (usize, (String, Option<u32>))| {
            let key = format!("end-{number}-{place}");
            match used {
                Some(used) => {
                    let body = json!({ "amount": used.to_string() });
                    json!({ "call": "consume", "id": id, "idempotency_key": key, "body": body })
                }
                None => json!({ "call": "release", "id": id, "idempotency_key": key }),
            }
        };
        let due = self.ends.remove(&number).unwrap_or_default();
        self.batch(due.into_iter().enumerate().map(end).collect(), 200).await;
        self.app.swept(&self.partitions).await;
    }

    async fn calls(&mut self, number: i64, year: &Year) {
        self.app.move_clock(&noon(self.first, number).checked_sub(1.hour()).unwrap().to_string()).await;
        self.end_holds(number).await;
        self.app.move_clock(&noon(self.first, number).to_string()).await;
        // The clock goes too fast for the job that seals keys: the ledger would be asked about each new one.
        self.app.app().operations.memory.key_filters.seal_keys(SEALED_WITHIN).await.unwrap();
        let days = &year[usize::try_from(number).unwrap()];
        self.uses_and_holds(number, days).await;
        let late = |(of, day): (usize, &Day)| {
            let (pages, days_ago) = day.late?;
            let at = noon(self.first, (number - days_ago).max(0)).to_string();
            Some(json!({
                "specversion": "1.0", "id": number.to_string(), "source": format!("/{}", tenant(of)), "time": at,
                "type": "tollgate.usage", "data": amount(of, pages)
            }))
        };
        let late: Vec<_> = days.iter().enumerate().filter_map(late).collect();
        self.send_late(late).await;
        for (of, day) in days.iter().enumerate() {
            self.adjustment(number, of, year).await;
            self.grants(number, of, day).await;
        }
    }

    /// Sends these events, and repeats those that cannot be taken yet.
    async fn send_late(&self, mut events: Vec<Value>) {
        while !events.is_empty() {
            let answer = send_batch(&self.app, &events).await;
            let mut outcomes = outcomes(&answer).into_iter();
            events.retain(|event| match outcomes.next().expect("an outcome of each") {
                ("accepted" | "duplicate", _) => false,
                (_, "gate_unavailable") => true,
                other => panic!("{event}: {other:?}"),
            });
        }
    }

    async fn put(&self, path: &str, definition: Value) {
        let path = format!("/v1/admin/{path}");
        let answer = until_answered(|| self.app.put(&path, definition.clone())).await;
        assert!(matches!(answer.status, 200 | 201), "{path}: {answer:?}");
    }

    async fn uses_and_holds(&mut self, number: i64, days: &[Day]) {
        let (mut uses, mut holds, mut ends) = (Vec::new(), Vec::new(), Vec::new());
        for (of, day) in days.iter().enumerate() {
            for (place, pages) in day.uses.iter().enumerate() {
                let key = format!("{number}-{of}-{place}");
                uses.push(json!({ "call": "usage", "idempotency_key": key, "body": amount(of, *pages) }));
            }
            let mut hold = |kind: &str, pages: u32, seconds: u32, end: Option<(i64, Option<u32>)>| {
                let (key, body) = (format!("{kind}-{number}-{of}"), amount(of, pages).lasting(seconds));
                holds.push(json!({ "call": "reserve", "idempotency_key": key, "body": body }));
                ends.push(end);
            };
            if let Some((pages, used)) = day.hold {
                hold("hold", pages, 86_400, Some((number + 1, used)));
            }
            if let Some((pages, used, days)) = day.long_hold {
                hold("long", pages, 86_400, Some((number + days, Some(used))));
            }
            if let Some((pages, after_all)) = day.expires {
                let end = after_all.map(|(used, days)| (number + 1 + days, Some(used)));
                hold("expires", pages, 3_600, end);
            }
        }
        self.batch(uses, 201).await;
        for (id, end) in self.batch(holds, 201).await.into_iter().zip(ends) {
            if let Some((on, used)) = end {
                self.ends.entry(on).or_default().push((id, used));
            }
        }
    }

    /// Finance takes back what is known to have been used then, or adds to it.
    async fn adjustment(&mut self, number: i64, of: usize, year: &Year) {
        let Some((pages, days_ago)) = year[usize::try_from(number).unwrap()][of].adjusted else { return };
        let Ok(then) = usize::try_from(number - days_ago) else { return };
        let used: u32 = year[then][of].uses.iter().sum();
        // No more can be taken back than was used then.
        let takes_back = used >= pages && self.taken_back.insert((of, number - days_ago));
        let sign = if takes_back { "-" } else { "" };
        let body = json!({
            "tenant": tenant(of), "meter": "page", "effect": "usage", "amount": format!("{sign}{pages}"),
            "happened_at": noon(self.first, number - days_ago).to_string(), "reason": "counted wrongly"
        });
        self.app.post_until_answered(ADJUSTMENTS, &format!("{number}-{of}"), body).await.expect(201);
    }

    async fn grants(&mut self, number: i64, of: usize, day: &Day) {
        let name = tenant(of);
        if day.voids
            && let Some(id) = self.grants.remove(&of)
        {
            let path = format!("/v1/admin/grants/{id}/void");
            until_answered(|| self.app.post(&path, json!({}))).await;
        }
        let Some(grant) = &day.grant else { return };
        let path = format!("/v1/tenants/{name}/quota");
        let quota = until_answered(|| self.app.get(&path)).await.expect(200);
        let calendar = CALENDARS[of % CALENDARS.len()];
        let ends = grant_end(noon(self.first, number), quota.text("/period/end"), calendar, grant);
        let body = amount(of, grant.pages).with("priority", grant.priority).with("expires_at", ends);
        let body = match grant.price {
            Some(price) => {
                body.with("kind", "paid").with("paid_amount", price.to_string()).with("currency", "EUR")
            }
            None => body.with("kind", "promotional"),
        };
        let key = format!("{number}-{of}");
        let made = self.app.post_until_answered("/v1/admin/grants", &key, body).await.expect(201);
        if grant.pages < LARGE / 4 {
            self.grants.insert(of, made.text("/id").to_owned());
        }
    }

    /// In the evening, hours after the jobs, tenants are put on other plans and move, and now and then plans include
    /// something else.
    async fn changes(&mut self, number: i64, days: &[Day]) {
        let changes_plans = number % PLANS_CHANGE_EVERY == PLANS_CHANGE_EVERY - 1;
        if !changes_plans && days.iter().all(|day| day.plan.is_none() && day.calendar.is_none()) {
            return;
        }
        let evening = noon(self.first, number).checked_add(6.hours()).unwrap();
        self.app.move_clock(&evening.to_string()).await;
        for (of, day) in days.iter().enumerate() {
            if day.plan.is_none() && day.calendar.is_none() && !changes_plans {
                continue;
            }
            // Opens the period: what is not open is opened with what policy says then.
            let path = format!("/v1/tenants/{}/quota", tenant(of));
            let quota = until_answered(|| self.app.get(&path)).await.expect(200);
            if let Some(plan) = day.plan {
                let now = json!({ "plan": plan }).with("plan_from", "now");
                let put = if plan == LOWERED { now } else { json!({ "plan": plan }) };
                self.put(&format!("tenants/{}", tenant(of)), put).await;
                self.plans[of] = plan;
            }
            let end: Timestamp = quota.text("/period/end").parse().unwrap();
            let is_early = evening.checked_add((NOBODY_MOVES_DAYS * 24).hours()).unwrap() < end;
            let stays_long = |calendar: &usize| {
                next_start(end, CALENDARS[*calendar]) > end.checked_add((SHORTEST_DAYS * 24).hours()).unwrap()
            };
            if let Some(calendar) = day.calendar.filter(|to| is_early && stays_long(to)) {
                let (time_zone, anchor_day) = CALENDARS[calendar];
                let moved =
                    json!({ "plan": self.plans[of], "time_zone": time_zone, "anchor_day": anchor_day });
                self.put(&format!("tenants/{}", tenant(of)), moved).await;
                self.moves += 1;
            }
        }
        if changes_plans {
            let more = usize::try_from(number / PLANS_CHANGE_EVERY % 3).unwrap() * 20;
            self.put("plans/plan", plan((100 + more) * self.uses, "0.02")).await;
            self.put("plans/large", plan((300 - more) * self.uses, "0.015")).await;
        }
    }

    /// Every job that writes books, to its end.
    async fn jobs(&mut self) {
        self.app.drained().await;
        self.jobs.run(&self.app).await;
        self.app.drained().await;
    }

    /// The books, once every period of the year is closed, and how the jobs ran.
    async fn books(mut self, days: i64) -> (Books, Jobs) {
        self.app.move_clock(&noon(self.first, days + 40).to_string()).await;
        self.app.swept(&self.app.app().operations.partitions().collect::<Vec<_>>()).await;
        self.jobs().await;
        assert!(self.moves > 0, "nobody has moved");
        let books = Books::of(&self.app.database).await;
        self.app.finish().await;
        (books, self.jobs)
    }
}

/// The books of a year whose jobs run every day.
async fn undisturbed(size: &Size, first: Date, year: &Year) -> Books {
    let mut run = Run::start(size, first).await;
    for (number, days) in (0..).zip(year) {
        run.calls(number, year).await;
        run.jobs().await;
        run.changes(number, days).await;
    }
    run.books(size.days).await.0
}

/// The books of the same year, in which jobs run now and then, break off, and rest for three months; and in which the
/// service starts again now and then. And how the jobs ran.
async fn disturbed(size: &Size, first: Date, year: &Year, seed: u64) -> (Books, Jobs) {
    let random = &mut StdRng::seed_from_u64(seed);
    let mut run = Run::start(size, first).await;
    for (number, days) in (0..).zip(year) {
        run.calls(number, year).await;
        if !size.downtime().contains(&number) {
            let is_backlog = (0..BREAKS_OF_BACKLOG).contains(&(number - size.downtime().end));
            match random.random_range(0..20) {
                _ if is_backlog => run.jobs.break_off(&run.app, random).await,
                0..4 => run.jobs().await,
                4..12 => run.jobs.break_off(&run.app, random).await,
                12 => run.app.restart().await,
                _ => {}
            }
        }
        run.changes(number, days).await;
    }
    run.books(size.days).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_year_whose_jobs_were_late_and_broke_off_ends_with_the_entries_of_an_undisturbed_one() {
    let operations = from_environment("TOLLGATE_YEAR_OPERATIONS");
    let size = match operations {
        None => Size { tenants: 20, days: 95, uses: 1 },
        Some(operations) => {
            let (tenants, days) = (50, 365);
            Size { tenants, days, uses: usize::try_from(operations).unwrap().div_ceil(tenants * 365) }
        }
    };
    let seed = from_environment("TOLLGATE_YEAR_SEED").unwrap_or_else(|| rand::rng().next_u64());
    println!("TOLLGATE_YEAR_SEED={seed}: {} tenants, {} days", size.tenants, size.days);
    let (first, year) = (date(2026, 1, 5), year(seed, &size));
    let (expected, (found, jobs)) =
        tokio::join!(undisturbed(&size, first, &year), disturbed(&size, first, &year, seed));
    found.equal(&expected, &format!("seed {seed}"));
    jobs.have_broken_inside(seed);
    let entries = expected.entries.join("\n");
    let late = "usage false true";
    for word in [
        "rolled_in",
        "carried_in",
        "lapsed",
        "overage",
        "correction",
        "adjusted",
        "repaid",
        "voided",
        "deferred",
        "breakage",
        late,
    ] {
        assert!(entries.contains(word), "seed {seed} has no {word}");
    }
    assert!(
        expected.statements.iter().any(|one| one.contains("credit_note")),
        "seed {seed} has no credit note"
    );
    assert!(!expected.continued.is_empty(), "seed {seed} has no grant that goes on");
}
