//! A simulated year: whenever jobs run, wherever they break off, and whatever comes late, the books end the same.
//!
//! A few tenants and four months in every run of the tests; `make year` has a year of a million operations.
//! `TOLLGATE_YEAR_SEED` repeats a run.

use std::collections::BTreeMap;
use std::future::Future;
use std::time::Duration;

use jiff::civil::{Date, date};
use jiff::{Timestamp, ToSpan};
use rand::rngs::StdRng;
use rand::{Rng, RngExt, SeedableRng};
use serde_json::{Value, json};
use tollgate::ledger::Manner;

use crate::http::events::send;
use crate::ledger::rows;
use crate::support::app::*;
use crate::support::books::{CONTINUED, ENTRIES, STATEMENTS};
use crate::support::process::from_environment;

const GRACE: Duration = Duration::from_secs(3600);
/// So many items has one batch.
const ITEMS: usize = 500;
/// Where tenants live, and when their periods begin.
const CALENDARS: [(&str, u8); 5] = [
    ("UTC", 1),
    ("Europe/Berlin", 1),
    ("Pacific/Auckland", 15),
    ("America/Los_Angeles", 31),
    ("Asia/Kolkata", 28),
];
/// A plan that holds at once and includes least.
const LOWERED: &str = "small";
/// On every so many-th day plans include something else.
const PLANS_CHANGE_EVERY: i64 = 5;
/// The pages of a grant of which something is left at the end of each period.
const LARGE: u32 = 2_000;

/// How long the simulation is, and how much happens in it.
struct Size {
    tenants: usize,
    days: i64,
    /// Uses of a tenant on a day, beside what is held.
    uses: usize,
}

impl Size {
    /// The days on which no job runs in a disturbed year.
    fn downtime(&self) -> std::ops::Range<i64> {
        self.days / 4..self.days / 4 + 92
    }
}

/// What happens to one tenant on one day, at noon; what it holds is ended an hour before the next noon.
#[derive(Debug, Clone, Default)]
struct Day {
    uses: Vec<u32>,
    /// What is held, and what of it is consumed, if it is not released.
    hold: Option<(u32, Option<u32>)>,
    /// What is held for so many days, and what of it is consumed then.
    long_hold: Option<(u32, u32, i64)>,
    /// Pages of an event, and how many days ago they were used.
    late: Option<(u32, i64)>,
    grant: Option<Grant>,
    voids: bool,
    plan: Option<&'static str>,
}

/// A grant of so many pages until a period ends.
#[derive(Debug, Clone)]
struct Grant {
    pages: u32,
    priority: u8,
    /// How many periods after the open one that is.
    periods: i64,
    /// What it costs, in euros.
    price: Option<u32>,
}

/// What happens, by day and tenant.
type Year = Vec<Vec<Day>>;

fn day(random: &mut StdRng, uses: usize) -> Day {
    let mut pages = |most: u32| random.random_range(1..=most);
    let (held, used) = (pages(20), pages(25) - 1);
    let late = (pages(9), i64::from(pages(20)));
    let (amount, priority) = (pages(60), u8::try_from(40 + pages(20)).unwrap());
    let periods = i64::from(pages(8)).saturating_sub(4).max(0);
    let price = Some(pages(90)).filter(|price| price % 2 == 0);
    let grant = Grant { pages: amount, priority, periods, price };
    let uses = (0..uses).map(|_| pages(3)).collect();
    let mut happens = |probability: f64| random.random_bool(probability);
    Day {
        uses: if happens(0.9) { uses } else { Vec::new() },
        hold: happens(0.3).then(|| (held, happens(0.7).then_some(used))),
        long_hold: None,
        late: happens(0.05).then_some(late),
        grant: happens(0.05).then_some(grant),
        voids: happens(0.03),
        plan: happens(0.02).then(|| if happens(0.5) { "large" } else { "plan" }),
    }
}

fn year(random: &mut StdRng, size: &Size) -> Year {
    let days = (0..size.days).map(|_| (0..size.tenants).map(|_| day(random, size.uses)).collect());
    let mut year: Year = days.collect();
    // The last change of each tenant lowers its quota at once. Another one would wait for it, where jobs rest.
    for of in 0..size.tenants {
        if let Some(last) = year.iter_mut().map(|day| &mut day[of]).rfind(|day| day.plan.is_some()) {
            last.plan = Some(LOWERED);
        }
    }
    // A grant of one period and one of three are so large that something is left of them at each end.
    for (of, periods) in [(0, 0), (1, 2)] {
        year[9][of].grant = Some(Grant { pages: LARGE, priority: 60, periods, price: None });
    }
    // Holds over one close and over two are set against a grant that burns before all else, or among others.
    for (of, pages, priority) in [(2, LARGE, 1), (3, LARGE / 4, 50)] {
        year[9][of].grant = Some(Grant { pages, priority, periods: 3, price: Some(70) });
        for (day, amount, used, days) in
            [(20, 30, 12, 30), (40, 20, 0, 50), (50, 25, 3, 40), (80, 40, 40, 45)]
        {
            year[day][of].long_hold = Some((amount, used, days));
        }
    }
    year
}

fn noon(first: Date, day: i64) -> Timestamp {
    let noon = first.checked_add(day.days()).unwrap().at(12, 0, 0, 0);
    noon.in_tz("UTC").unwrap().timestamp()
}

/// The end of a later period: so many after the one that ends at `end`.
fn later_end(end: &str, (zone, anchor_day): (&str, u8), periods: i64) -> String {
    let end: Timestamp = end.parse().unwrap();
    let month = end.in_tz(zone).unwrap().date().first_of_month().checked_add(periods.months()).unwrap();
    let day = i8::try_from(anchor_day).unwrap().min(month.days_in_month());
    month.with().day(day).build().unwrap().in_tz(zone).unwrap().timestamp().to_string()
}

fn tenant(number: usize) -> String {
    format!("tenant-{number}")
}

fn plan(included: &str, unit: &str) -> Value {
    let tiers = json!([{ "up_to": "500", "unit": unit }, { "unit": "0.01" }]);
    let price = json!({
        "meter": "page", "model": "graduated", "currency": "EUR", "tiers": tiers, "effective_from": "2025-12-01"
    });
    let quota = quota_of(included).with("mode", "soft").with("max_rollover", "80").with("min_rollover", "10");
    let quota = quota.with("rollover_periods", 2).with("reroll", true).with("preserve_overage", true);
    json!({ "quotas": [quota], "prices": [price], "discounts": [{ "id": "tenth", "percent": "10" }] })
}

/// One run of a year.
struct Run {
    app: TestApp,
    first: Date,
    /// Of each tenant what it holds, and what of it is to be consumed.
    held: BTreeMap<usize, (String, Option<u32>)>,
    /// What is held until a day, and what of it is to be consumed then.
    long_held: Vec<(i64, String, u32)>,
    /// The last grant of each tenant that can be voided.
    grants: BTreeMap<usize, String>,
}

impl Run {
    async fn start(size: &Size, first: Date) -> Self {
        let start = noon(first, -1).to_string();
        let app = an_app().at(&start).without_jobs().start().await;
        app.with_plan(json!([]), json!([])).await;
        app.define("plans/plan", plan("100", "0.02")).await;
        app.define("plans/large", plan("300", "0.015")).await;
        app.define(&format!("plans/{LOWERED}"), plan("40", "0.03")).await;
        for number in 0..size.tenants {
            let (time_zone, anchor_day) = CALENDARS[number % CALENDARS.len()];
            let body = json!({ "plan": "plan", "time_zone": time_zone, "anchor_day": anchor_day });
            app.define(&format!("tenants/{}", tenant(number)), body).await;
        }
        Self { app, first, held: BTreeMap::new(), long_held: Vec::new(), grants: BTreeMap::new() }
    }

    async fn batch(&self, items: Vec<Value>) {
        for some in items.chunks(ITEMS) {
            let answer = self.app.post("/v1/batch", json!({ "items": some })).await.expect(200);
            let results = answer.body["results"].as_array().unwrap();
            assert!(results.iter().all(|result| result["status"] == 201), "{answer:?}");
        }
    }

    /// An hour before noon of a day: what was held the day before ends, and what is held until this day.
    async fn end_holds(&mut self, number: i64) {
        for (_, id, used) in self.long_held.extract_if(.., |(until, ..)| *until == number) {
            self.app.consume(&id, &used.to_string()).await.expect(200);
        }
        for (id, used) in std::mem::take(&mut self.held).into_values() {
            match used {
                Some(used) => self.app.consume(&id, &used.to_string()).await.expect(200),
                None => self.app.release(&id).await.expect(200),
            };
        }
    }

    async fn calls(&mut self, number: i64, days: &[Day]) {
        self.app.move_clock(&noon(self.first, number).checked_sub(1.hour()).unwrap().to_string()).await;
        self.end_holds(number).await;
        self.app.move_clock(&noon(self.first, number).to_string()).await;
        let mut uses = Vec::new();
        for (of, day) in days.iter().enumerate() {
            for (place, pages) in day.uses.iter().enumerate() {
                let body = json!({ "tenant": tenant(of), "meter": "page", "amount": pages.to_string() });
                let key = format!("{number}-{of}-{place}");
                uses.push(json!({ "call": "usage", "idempotency_key": key, "body": body }));
            }
        }
        self.batch(uses).await;
        for (of, day) in days.iter().enumerate() {
            self.of_tenant(number, of, day).await;
        }
    }

    async fn of_tenant(&mut self, number: i64, of: usize, day: &Day) {
        let (app, name) = (&self.app, tenant(of));
        let pages = |amount: u32| json!({ "tenant": name, "meter": "page", "amount": amount.to_string() });
        if let Some((amount, used)) = day.hold {
            self.held.insert(of, (app.held(pages(amount).lasting(86_400)).await, used));
        }
        if let Some((amount, used, days)) = day.long_hold {
            self.long_held.push((number + days, app.held(pages(amount).lasting(86_400)).await, used));
        }
        if let Some((amount, days_ago)) = day.late {
            let at = noon(self.first, number - days_ago).max(noon(self.first, 0)).to_string();
            let event = json!({
                "specversion": "1.0", "id": format!("{number}"), "source": format!("/{name}"), "type": "tollgate.usage",
                "time": at, "data": pages(amount)
            });
            send(app, &event).await;
        }
        if day.voids
            && let Some(id) = self.grants.remove(&of)
        {
            app.post(&format!("/v1/admin/grants/{id}/void"), Value::Null).await;
        }
        if let Some(Grant { pages: amount, priority, periods, price }) = day.grant {
            let quota = app.get(&format!("/v1/tenants/{name}/quota")).await.expect(200);
            let ends = later_end(quota.text("/period/end"), CALENDARS[of % CALENDARS.len()], periods);
            let body = pages(amount).with("priority", priority).with("expires_at", ends);
            let body = match price {
                Some(price) => {
                    body.with("kind", "paid").with("paid_amount", price.to_string()).with("currency", "EUR")
                }
                None => body.with("kind", "promotional"),
            };
            let made = app.post_keyed("/v1/admin/grants", &format!("{number}-{of}"), body).await.expect(201);
            if amount < LARGE / 4 {
                self.grants.insert(of, made.text("/id").to_owned());
            }
        }
    }

    /// In the evening, hours after the jobs, tenants are put on other plans, and now and then plans include something
    /// else.
    async fn changes(&self, number: i64, days: &[Day]) {
        let changes_plans = number % PLANS_CHANGE_EVERY == PLANS_CHANGE_EVERY - 1;
        if !changes_plans && days.iter().all(|day| day.plan.is_none()) {
            return;
        }
        let evening = noon(self.first, number).checked_add(6.hours()).unwrap();
        self.app.move_clock(&evening.to_string()).await;
        for (of, day) in days.iter().enumerate() {
            let name = tenant(of);
            if day.plan.is_some() || changes_plans {
                // Opens the period: what is not open is opened with what policy says then.
                self.app.get(&format!("/v1/tenants/{name}/quota")).await.expect(200);
            }
            if let Some(plan) = day.plan {
                let mut tenant = json!({ "plan": plan });
                if plan == LOWERED {
                    tenant["plan_from"] = "now".into();
                }
                self.app.define(&format!("tenants/{name}"), tenant).await;
            }
        }
        if changes_plans {
            let more = number / PLANS_CHANGE_EVERY % 3 * 20;
            self.app.define("plans/plan", plan(&(100 + more).to_string(), "0.02")).await;
            self.app.define("plans/large", plan(&(300 - more).to_string(), "0.015")).await;
        }
    }

    /// Every job that writes books, to its end.
    async fn jobs(&self) {
        self.app.drained().await;
        let operations = &self.app.app().operations;
        operations.memory.open_next_periods().await.unwrap();
        operations.grants.follow().await.unwrap();
        operations.plan_changes.follow().await.unwrap();
        while operations.periods.close(Manner::default(), GRACE).await.unwrap().closed > 0 {}
        operations.statements.issue(Manner::default(), GRACE).await.unwrap();
        self.app.drained().await;
    }

    /// The same jobs, each of which breaks off somewhere.
    async fn broken_jobs(&self, random: &mut StdRng) {
        async fn broken<T>(random: &mut StdRng, job: impl Future<Output = T>) {
            let after = Duration::from_micros(random.random_range(0..60_000));
            let _ = tokio::time::timeout(after, job).await;
        }
        let operations = &self.app.app().operations;
        broken(random, operations.memory.open_next_periods()).await;
        broken(random, operations.grants.follow()).await;
        broken(random, operations.plan_changes.follow()).await;
        broken(random, operations.periods.close(Manner::default(), GRACE)).await;
        broken(random, operations.statements.issue(Manner::default(), GRACE)).await;
    }

    /// The books, once every period of the year is closed.
    async fn books(self, days: i64) -> [Vec<String>; 3] {
        self.app.move_clock(&noon(self.first, days + 40).to_string()).await;
        self.jobs().await;
        let mut books = Vec::new();
        for query in [ENTRIES, STATEMENTS, CONTINUED] {
            books.push(rows(&self.app.database, query).await);
        }
        self.app.finish().await;
        books.try_into().unwrap()
    }
}

/// The books of a year whose jobs run every day.
async fn undisturbed(size: &Size, first: Date, year: &Year) -> [Vec<String>; 3] {
    let mut run = Run::start(size, first).await;
    for (number, days) in (0..).zip(year) {
        run.calls(number, days).await;
        run.jobs().await;
        run.changes(number, days).await;
    }
    run.books(size.days).await
}

/// The books of the same year, in which jobs run now and then, break off, and rest for three months; and in which the
/// service starts again now and then.
async fn disturbed(size: &Size, first: Date, year: &Year, seed: u64) -> [Vec<String>; 3] {
    let random = &mut StdRng::seed_from_u64(seed);
    let mut run = Run::start(size, first).await;
    for (number, days) in (0..).zip(year) {
        run.calls(number, days).await;
        if !size.downtime().contains(&number) {
            match random.random_range(0..20) {
                0..4 => run.jobs().await,
                4..12 => run.broken_jobs(random).await,
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
        None => Size { tenants: 5, days: 140, uses: 2 },
        Some(operations) => {
            let (tenants, days) = (50, 365);
            Size { tenants, days, uses: usize::try_from(operations).unwrap().div_ceil(tenants * 365) }
        }
    };
    let seed = from_environment("TOLLGATE_YEAR_SEED").unwrap_or_else(|| rand::rng().next_u64());
    println!("TOLLGATE_YEAR_SEED={seed}: {} tenants, {} days", size.tenants, size.days);
    let (first, year) = (date(2026, 1, 5), year(&mut StdRng::seed_from_u64(seed), &size));
    let (expected, found) =
        tokio::join!(undisturbed(&size, first, &year), disturbed(&size, first, &year, seed));
    for (expected, found) in expected.iter().zip(&found) {
        let only = |one: &[String], other: &[String]| {
            let other: std::collections::BTreeSet<_> = other.iter().collect();
            one.iter().filter(|row| !other.contains(row)).take(12).cloned().collect::<Vec<_>>()
        };
        let (missing, more) = (only(expected, found), only(found, expected));
        assert!(
            missing.is_empty() && more.is_empty(),
            "seed {seed}: missing {missing:#?}, instead {more:#?}"
        );
    }
    let [entries, statements, continued] = expected.map(|rows| rows.join("\n"));
    for word in ["rolled_in", "lapsed", "overage", "correction", "repaid", "voided", "deferred", "breakage"] {
        assert!(entries.contains(word), "seed {seed} has no {word}");
    }
    assert!(statements.contains("credit_note"), "seed {seed} has no credit note");
    assert!(!continued.is_empty(), "seed {seed} has no grant that goes on");
}
