//! The same use of a month in two services: in one as it happens, in the other in another order, in parts, held first
//! or as late events. The bills, what has burnt of grants, and the sums of the books are the same.

use std::collections::BTreeMap;

use jiff::{Timestamp, ToSpan};
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rust_decimal::Decimal;
use serde_json::{Value, json};

use super::statements::run;
use crate::http::events::{ACCEPTED, outcomes, send_batch};
use crate::ledger::rows;
use crate::support::app::*;
use crate::support::books::Books;

/// So many tenants, each with a plan of its own.
const WORLDS: usize = 12;
/// At so many moments of the month each of them uses something; one more lies in the grace.
const MOMENTS: usize = 15;
/// What each account has in all. Units that were held and came back leave nothing there.
const SUMS: &str = "SELECT tenant, meter, period_start AT TIME ZONE 'UTC' AS period, account, trim_scale(sum(amount))::text AS s FROM ( \
        SELECT tenant, meter, period_start, debit AS account, amount FROM entries \
        UNION ALL SELECT tenant, meter, period_start, credit, -amount FROM entries) e \
    GROUP BY 1, 2, 3, 4 HAVING sum(amount) <> 0 ORDER BY 1, 2, 3, 4";

/// When a moment is: a hold lasts from one to the next.
fn instant(moment: usize) -> String {
    let first: Timestamp = "2026-03-19T12:00:00Z".parse().unwrap();
    let in_the_grace: Timestamp = "2026-04-01T00:30:00Z".parse().unwrap();
    let hours = i64::try_from(moment).unwrap() * 20;
    if moment < MOMENTS { first.checked_add(hours.hours()).unwrap() } else { in_the_grace }.to_string()
}

fn decimal(millionths: i64) -> String {
    Decimal::new(millionths, 6).normalize().to_string()
}

/// Up to so many units, with six decimals or fewer.
fn millionths(random: &mut StdRng, most: i64) -> i64 {
    let step = 10_i64.pow(random.random_range(0..=6));
    random.random_range(1..=most * 1_000_000 / step) * step
}

/// An amount of a meter.
#[derive(Debug, Clone, Copy)]
struct Use {
    meter: &'static str,
    millionths: i64,
}

/// A tenant, and what it uses at each moment.
#[derive(Debug)]
struct World {
    plan: Value,
    currency: &'static str,
    taxes: Value,
    grants: [Value; 2],
    uses: Vec<Use>,
}

impl World {
    /// By chance, but for what the first ones have: more than they use, or next to nothing, and a tax or none.
    fn random(random: &mut StdRng, number: usize) -> Self {
        let currency = ["JPY", "EUR", "KWD"][random.random_range(0..3)];
        let quota = |random: &mut StdRng, meter: &str| {
            let included = [1_000_000_000, 1_000_000].get(number).copied();
            let included = decimal(included.unwrap_or_else(|| millionths(random, 40)));
            json!({ "meter": meter, "included": included, "mode": "soft" })
        };
        let quotas = ["page", "token"].map(|meter| quota(random, meter));
        let beyond =
            json!({ "id": "beyond", "charge_on": "overage", "model": "per_unit", "unit": rate(random) });
        let prices = [("page", graduated(random)), ("page", beyond), ("token", graduated(random))];
        let prices = prices.map(|(meter, price)| {
            price.with("meter", meter).with("currency", currency).with("effective_from", "2026-01-01")
        });
        let mut plan = json!({ "quotas": quotas, "prices": prices });
        if random.random_bool(0.5) {
            plan["discounts"] = json!([{ "id": "percent", "percent": "12.5" }]);
        }
        if random.random_bool(0.3) {
            plan["minimum_commitments"] = json!([{ "amount": "900", "currency": currency }]);
        }
        let vat = json!({ "code": "vat", "percent": "19" });
        let taxes = if number % 2 == 1 { json!([vat]) } else { json!([]) };
        let mut grant = |kind: &str| {
            let meter = ["page", "page", "token"][random.random_range(0..3)];
            json!({
                "meter": meter, "amount": decimal(millionths(random, 30)), "kind": kind,
                "priority": if number == 0 { 99 } else { random.random_range(1..100) }, "expires_at": "2026-04-01T00:00:00Z"
            })
        };
        let promotional = grant("promotional");
        let paid = grant("paid").with("paid_amount", "70").with("currency", currency);
        let uses = (0..MOMENTS).map(|_| Use {
            meter: if random.random_bool(0.6) { "page" } else { "token" },
            millionths: millionths(random, 12),
        });
        let uses = uses.collect();
        Self { plan, currency, taxes, grants: [promotional, paid], uses }
    }
}

fn rate(random: &mut StdRng) -> String {
    Decimal::new(random.random_range(1..40_000_000_000_000), 12).to_string()
}

fn graduated(random: &mut StdRng) -> Value {
    let bound = decimal(millionths(random, 40));
    let tiers = json!([{ "up_to": bound, "unit": rate(random) }, { "unit": rate(random) }]);
    json!({ "model": "graduated", "tiers": tiers, "included": decimal(millionths(random, 5)) })
}

/// How an amount comes.
#[derive(Debug, Clone, Copy)]
enum Way {
    /// As it is used.
    Usage,
    /// As an event of work that was done at an earlier moment.
    Event(usize),
    /// By a hold of so many millionths, which ends at this moment or the next one.
    Hold(i64, usize),
}

/// What comes at a moment.
#[derive(Debug)]
struct Part {
    of: usize,
    used: Use,
    at: usize,
    way: Way,
}

impl Part {
    fn body(&self, millionths: i64) -> Value {
        json!({ "tenant": format!("t{}", self.of), "meter": self.used.meter, "amount": decimal(millionths) })
    }

    fn ends_at(&self, moment: usize) -> bool {
        matches!(self.way, Way::Hold(_, end) if end == moment)
    }
}

fn all(worlds: &[World]) -> impl Iterator<Item = (usize, usize, Use)> {
    let of = |(of, world): (usize, &World)| {
        let uses = world.uses.clone().into_iter().enumerate();
        uses.map(move |(at, used)| (of, at, used))
    };
    worlds.iter().enumerate().flat_map(of)
}

/// Each use by itself at its moment.
fn in_order(worlds: &[World]) -> Vec<Part> {
    all(worlds).map(|(of, at, used)| Part { of, used, at, way: Way::Usage }).collect()
}

/// Each use in up to three parts, of which each comes at any moment and by any way.
fn in_any_order(random: &mut StdRng, worlds: &[World]) -> Vec<Part> {
    let mut parts = Vec::new();
    for (of, moment, used) in all(worlds) {
        let mut left = used.millionths;
        for last in (0..random.random_range(1..=3)).rev() {
            let millionths = if last == 0 { left } else { random.random_range(0..=left) };
            left -= millionths;
            let at = random.random_range(0..MOMENTS);
            let (at, way) = match random.random_range(0..3) {
                0 => (at, Way::Usage),
                1 => (random.random_range(moment..=MOMENTS), Way::Event(moment)),
                _ => (
                    at,
                    Way::Hold(random.random_range(1..=2 * millionths.max(1)), at + random.random_range(0..2)),
                ),
            };
            parts.push(Part { of, used: Use { millionths, ..used }, at, way });
        }
    }
    parts.retain(|part| part.used.millionths > 0);
    parts.shuffle(random);
    parts
}

/// A service with these tenants, and what is held there, by the place of the part.
struct Run {
    app: TestApp,
    held: BTreeMap<usize, String>,
    /// The ids of grants, with the names that they have in both services.
    grants: Vec<(String, String)>,
}

impl Run {
    async fn start(worlds: &[World], batch_events: usize) -> Self {
        let app = an_app().at("2026-03-02T12:00:00Z").without_jobs().with("gate.partitions", 4);
        let app = app.with("writer.batch_events", batch_events).start().await;
        for meter in ["page", "token"] {
            let definition = json!({ "unit": meter, "decimals": 6, "without_limit": "unlimited" });
            app.define(&format!("meters/{meter}"), definition).await;
        }
        let mut grants = Vec::new();
        for (of, world) in worlds.iter().enumerate() {
            app.define(&format!("plans/p{of}"), world.plan.clone()).await;
            let tenant =
                json!({ "plan": format!("p{of}"), "currency": world.currency, "taxes": world.taxes });
            app.define(&format!("tenants/t{of}"), tenant).await;
            for (number, grant) in world.grants.iter().enumerate() {
                let name = format!("grant-{of}-{number}");
                let body = grant.clone().of(format!("t{of}"));
                let made = app.post_keyed("/v1/admin/grants", &name, body).await.expect(201);
                grants.push((made.text("/id").to_owned(), name));
            }
        }
        Self { app, held: BTreeMap::new(), grants }
    }

    /// Sends these parts, in batches of random sizes, some of which are booked before the next one comes.
    async fn comes(&mut self, random: &mut StdRng, parts: &[Part]) {
        for moment in 0..=MOMENTS {
            self.app.move_clock(&instant(moment)).await;
            let begin: Vec<_> = parts.iter().enumerate().filter(|(_, part)| part.at == moment).collect();
            let end: Vec<_> = parts.iter().enumerate().filter(|(_, part)| part.ends_at(moment)).collect();
            for (due, ends) in [(&begin[..], false), (&end[..], true)] {
                let mut due = due;
                while !due.is_empty() {
                    let (some, rest) = due.split_at(random.random_range(1..40).min(due.len()));
                    if ends {
                        self.ends(some).await
                    } else {
                        self.begins(some).await
                    }
                    if random.random_bool(0.15) {
                        self.app.drained().await;
                    }
                    due = rest;
                }
            }
        }
    }

    async fn begins(&mut self, some: &[(usize, &Part)]) {
        let (mut calls, mut holds, mut events) = (Vec::new(), Vec::new(), Vec::new());
        for (place, part) in some {
            let (key, body) = (format!("{place}"), part.body(part.used.millionths));
            match part.way {
                Way::Usage => calls.push(json!({ "call": "usage", "idempotency_key": key, "body": body })),
                Way::Event(moment) => events.push(json!({
                    "specversion": "1.0", "id": key, "source": "/late", "type": "tollgate.usage",
                    "time": instant(moment), "data": body
                })),
                Way::Hold(millionths, _) => {
                    let body = part.body(millionths).lasting(86_400);
                    holds.push((*place, calls.len()));
                    calls.push(json!({ "call": "reserve", "idempotency_key": key, "body": body }));
                }
            }
        }
        let results = self.batch(calls, 201).await;
        self.held.extend(holds.into_iter().map(|(place, of)| (place, results[of].clone())));
        if !events.is_empty() {
            let sent = send_batch(&self.app, &events).await;
            assert!(outcomes(&sent).iter().all(|outcome| *outcome == ACCEPTED), "{sent:?}");
        }
    }

    async fn ends(&self, some: &[(usize, &Part)]) {
        let consume = |(place, part): &(usize, &Part)| {
            let body = json!({ "amount": decimal(part.used.millionths) });
            json!({ "call": "consume", "id": self.held[place], "idempotency_key": format!("end-{place}"), "body": body })
        };
        self.batch(some.iter().map(consume).collect(), 200).await;
    }

    /// Does these calls. Returns the ids in the answers.
    async fn batch(&self, items: Vec<Value>, status: u16) -> Vec<String> {
        if items.is_empty() {
            return Vec::new();
        }
        let answer = self.app.post("/v1/batch", json!({ "items": items })).await.expect(200);
        let results = answer.body["results"].as_array().unwrap().iter().zip(&items);
        let id = |(result, item): (&Value, &Value)| {
            assert_eq!(result["status"], status, "{item}: {result}");
            result["body"]["id"].as_str().unwrap_or_default().to_owned()
        };
        results.map(id).collect()
    }

    /// Closes the month and bills it. Returns the books, in which grants have their names, and the sums.
    async fn bills(&self) -> (Books, Vec<String>) {
        self.app.move_clock("2026-04-01T02:00:00Z").await;
        let issued = run(&self.app).await;
        assert_eq!((issued.waiting, issued.failed.len()), (0, 0), "{issued:?}");
        let mut books = Books::of(&self.app.database).await;
        let named = |statement: &String| {
            self.grants.iter().fold(statement.clone(), |text, (id, name)| text.replace(id, name))
        };
        books.statements = books.statements.iter().map(named).collect();
        (books, rows(&self.app.database, SUMS).await)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn however_the_use_of_a_month_comes_it_is_billed_and_booked_the_same() {
    let seed: u64 = rand::random();
    println!("seed {seed}");
    let random = &mut StdRng::seed_from_u64(seed);
    let worlds: Vec<_> = (0..WORLDS).map(|number| World::random(random, number)).collect();
    let (ordered, shuffled) = (in_order(&worlds), in_any_order(random, &worlds));
    let of = async |parts: &[Part], batch_events: usize| {
        let random = &mut StdRng::seed_from_u64(seed);
        let mut run = Run::start(&worlds, batch_events).await;
        run.comes(random, parts).await;
        let (books, sums) = run.bills().await;
        (run.app, books, sums)
    };
    let ((one, expected, sums), (other, found, found_sums)) =
        tokio::join!(of(&ordered, 2_000), of(&shuffled, random.random_range(2..10)));
    assert_eq!(expected.statements.len(), WORLDS, "{:?}", expected.statements);
    for (what, expected, found) in [
        ("statements", &expected.statements, &found.statements),
        ("sums", &sums, &found_sums),
        ("burns", &expected.burns, &found.burns),
        ("grants", &expected.grants, &found.grants),
        ("closures", &expected.closures, &found.closures),
    ] {
        assert_eq!(expected.len(), found.len(), "seed {seed}: {what}");
        for (of, found) in expected.iter().zip(found) {
            assert_eq!(of, found, "seed {seed}: {what}");
        }
    }
    // What could have differed is there.
    for account in ["overage", "lapsed", "revenue", "breakage", "tax"] {
        let has = |row: &String| row.split(' ').any(|word| word == account);
        assert!(sums.iter().any(has), "seed {seed} has no {account}");
    }
    one.finish().await;
    other.finish().await;
}
