//! `POST /v1/admin/policy/test`: whom a policy file would have refused.

use std::collections::{BTreeMap, BTreeSet};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};

use super::events::send;
use crate::support::app::*;

const TEST: &str = "/v1/admin/policy/test";
const CHECK: &str = "/v1/ratelimit/check";
const MIDNIGHT: &str = "2026-03-10T00:00:00Z";
const MINUTE_MS: i64 = 60_000;
const STEPS: usize = 260;

/// Everything but the limits, as a policy file.
fn file(limits: Value, of_vips: Value, included: &str, interval_seconds: u32) -> Value {
    let tenant = |id: &str| json!({ "id": id, "plan": "plan" });
    let named = json!([{ "kind": "user", "id": "vip", "plan": "vip" }]);
    let mut submit = json!({ "id": "submit", "costs": [{ "meter": "page", "weights": { "pages": "1" } }] });
    if interval_seconds > 0 {
        submit["min_interval_seconds"] = interval_seconds.into();
    }
    json!({
        "meters": [
            { "id": "page", "unit": "page" },
            { "id": "token", "unit": "token", "decimals": 1, "without_limit": "unlimited" },
            { "id": "call", "unit": "call", "booked": false }
        ],
        "operations": [submit, { "id": "look", "costs": [{ "meter": "call", "base": "1" }] }],
        "plans": [
            { "id": "plan", "limits": limits, "quotas": [{ "meter": "page", "included": included }] },
            { "id": "vip", "limits": of_vips, "quotas": [] }
        ],
        "tenants": [tenant("acme").with("subjects", named), tenant("other"), tenant("third")]
    })
}

fn limit_of_calls(capacity: &str) -> Value {
    json!({ "id": "calls", "meter": "call", "scope": "subject", "subject_kind": "user", "algorithm": "fixed_window",
        "window_seconds": 3600, "capacity": capacity })
}

/// The policy under which the day is recorded: only calls are refused.
fn wide() -> Value {
    file(
        json!([limit_of_calls("2"), { "id": "day", "meter": "page", "window": "day", "capacity": "9000" }]),
        json!([]),
        "9000",
        0,
    )
}

/// The limits that refuse in the proposed policy.
const REFUSING: [&str; 10] =
    ["bucket", "budget", "calls", "day", "hour", "interval:submit", "leak", "log", "quota:page", "slots"];

/// The proposed policy: every algorithm, and two limits that refuse nothing.
fn tight() -> Value {
    let user = |limit: Value| limit.with("scope", "subject").with("subject_kind", "user");
    let bucket = |capacity: &str| {
        user(
            json!({ "id": "bucket", "meter": "page", "algorithm": "token_bucket", "capacity": capacity, "refill": "2", "per_seconds": 3600 }),
        )
    };
    let limits = json!([
        limit_of_calls("1"),
        { "id": "day", "meter": "page", "window": "day", "capacity": "45" },
        bucket("6"),
        { "id": "hour", "meter": "page", "algorithm": "sliding_counter", "window_seconds": 3600, "sub_windows": 6, "capacity": "9" },
        user(json!({ "id": "log", "meter": "page", "algorithm": "sliding_log", "window_seconds": 10800, "capacity": "9" })),
        { "id": "leak", "meter": "token", "algorithm": "leaky_bucket", "capacity": "10", "drain": "3", "per_seconds": 3600, "max_wait_seconds": 9000 },
        { "id": "slots", "meter": "page", "algorithm": "concurrency", "counts": "reservations", "capacity": "3" },
        { "id": "budget", "meters": { "page": "1", "token": "0.5" }, "decimals": 2, "algorithm": "fixed_window", "window_seconds": 7200, "capacity": "10" },
        { "id": "watched", "meter": "page", "window": "hour", "capacity": "5", "kind": "shadow", "class": "rate" },
        { "id": "warned", "meter": "page", "window": "hour", "capacity": "5", "kind": "soft" }
    ]);
    file(limits, json!([bucket("8")]), "40", 1800)
}

/// A call of the day.
#[derive(Debug, Clone)]
enum Step {
    /// A reserve with its number, or a dry run.
    Reserve(usize, Value),
    Use(Value),
    Check(Value),
    Event(u32, i64),
    /// What is done to the reservation of a number.
    Resolve(usize, &'static str, Value),
}

/// The same day's traffic on every run: the minute of each call, and the call.
fn traffic() -> Vec<(i64, Step)> {
    let mut chance = StdRng::seed_from_u64(20_260_310);
    let (mut minute, mut made, mut open) = (1, 0, Vec::new());
    let mut steps = Vec::new();
    for _ in 0..STEPS {
        minute += [0, 0, 1, 3, 7, 14][chance.random_range(0..6)];
        let tenant = ["acme", "acme", "other", "third"][chance.random_range(0..4)];
        let user = ["ada", "bob", "vip"][chance.random_range(0..3)];
        let amount = chance.random_range(1..6).to_string();
        let work = match chance.random_range(0..4) {
            0 => json!({ "operation": "submit", "attributes": { "pages": amount.parse::<u32>().unwrap() } }),
            1 => {
                json!({ "lines": [{ "meter": "page", "amount": amount }, { "meter": "token", "amount": "2.5" }] })
            }
            2 => json!({ "meter": "token", "amount": amount }),
            _ => json!({ "meter": "page", "amount": amount }),
        };
        let work = work.of(tenant).by(user);
        let step = match chance.random_range(0..100) {
            0..35 => {
                let ttl = 60 * chance.random_range(10..180);
                let mode = if chance.random_range(0..6) == 0 { "best_effort" } else { "all_or_nothing" };
                open.push(made);
                made += 1;
                Step::Reserve(made - 1, work.lasting(ttl).with("mode", mode))
            }
            35..48 => Step::Use(work),
            48..66 => {
                Step::Check(json!({ "tenant": tenant, "subjects": { "user": user }, "operation": "look" }))
            }
            66..70 => Step::Event(chance.random_range(1..4), chance.random_range(0..90)),
            70..73 => Step::Reserve(usize::MAX, work.with("dry_run", true)),
            _ if open.is_empty() => continue,
            _ => {
                let at = chance.random_range(0..open.len());
                let (verb, body, ends) = match chance.random_range(0..7) {
                    0 => ("release", json!({}), true),
                    1 => ("extend", json!({ "ttl_seconds": 7200 }), false),
                    2 => ("consume", json!({ "amount": "1", "final": false }), false),
                    3 => ("consume", json!({ "amount": "7" }), true),
                    4 => ("consume", json!({ "amount": "1" }), true),
                    _ => ("consume", json!({}), true),
                };
                let number = if ends { open.remove(at) } else { open[at] };
                Step::Resolve(number, verb, body)
            }
        };
        steps.push((minute, step));
    }
    assert!((600..1_430).contains(&minute), "one day: {minute} minutes");
    steps
}

/// Who was refused: how often by limit, tenant and hour; and how many decisions in all.
#[derive(Debug, Default, PartialEq, Eq)]
struct Refusals {
    rows: BTreeMap<(String, String, String), u64>,
    decisions: u64,
}

fn time_of(minute: i64) -> jiff::Timestamp {
    let midnight: jiff::Timestamp = MIDNIGHT.parse().unwrap();
    jiff::Timestamp::from_millisecond(midnight.as_millisecond() + minute * MINUTE_MS).unwrap()
}

/// Ends the holds whose time is over.
async fn expire(app: &TestApp) {
    let operations = &app.app().operations;
    for partition in operations.partitions() {
        while operations.calls.expire_due(partition).await.unwrap().more {}
    }
}

/// Makes the day's calls, each at its minute.
async fn live(app: &TestApp, steps: &[(i64, Step)]) -> Refusals {
    let mut held: BTreeMap<usize, String> = BTreeMap::new();
    let mut refusals = Refusals::default();
    for (number, (minute, step)) in steps.iter().enumerate() {
        let now = time_of(*minute);
        app.move_clock(&now.to_string()).await;
        expire(app).await;
        let answer = match step {
            Step::Reserve(_, body) => app.post(RESERVATIONS, body.clone()).await,
            Step::Use(body) => app.post_keyed(USAGE, &format!("use-{number}"), body.clone()).await,
            Step::Check(body) => app.post(CHECK, body.clone()).await,
            Step::Event(amount, minutes_ago) => {
                let time = time_of(minute - minutes_ago).to_string();
                send(app, &super::events::event(&format!("event-{number}"), *amount, Some(&time))).await
            }
            Step::Resolve(of, verb, body) => match held.get(of) {
                Some(id) => app.resolve(id, verb, body.clone()).await,
                None => continue,
            },
        };
        assert!(answer.status < 500, "{step:?}: {answer:?}");
        if let (Step::Reserve(of, _), 201) = (step, answer.status) {
            held.insert(*of, answer.text("/id").to_owned());
        }
        let is_refusal = matches!(answer.status, 402 | 429) || answer.body["allowed"] == false;
        if is_refusal && !matches!(step, Step::Reserve(usize::MAX, _)) {
            refusals.note(app, &answer, now).await;
        }
    }
    refusals
}

impl Refusals {
    async fn note(&mut self, app: &TestApp, answer: &Answered, now: jiff::Timestamp) {
        let why = app.get(&format!("/v1/decisions/{}", answer.text("/decision_id"))).await.expect(200);
        let hour = format!("{}:00:00Z", &now.to_string()[..13]);
        let limits = why.body["limits"].as_array().unwrap().iter().filter(|limit| limit["refused"] == true);
        // One limit may refuse by its counters of several scopes.
        let limits: BTreeSet<&str> = limits.map(|limit| limit["id"].as_str().unwrap()).collect();
        assert!(!limits.is_empty(), "{why:?}");
        for limit in limits {
            let row = (limit.to_owned(), why.text("/tenant").to_owned(), hour.clone());
            *self.rows.entry(row).or_default() += 1;
        }
        self.decisions += 1;
    }

    fn of(tried: &Answered) -> Self {
        let row = |row: &Value| {
            let text = |field: &str| row[field].as_str().unwrap().to_owned();
            ((text("limit"), text("tenant"), text("hour")), row["refused"].as_u64().unwrap())
        };
        let rows = tried.body["data"].as_array().unwrap().iter().map(row).collect();
        Self { rows, decisions: tried.body["refused"].as_u64().unwrap() }
    }
}

async fn under(policy: &Value) -> TestApp {
    let app = an_app().at(MIDNIGHT).without_jobs().with("decisions.sample_percent", 100).start().await;
    let body = json!({ "policy": policy });
    app.post("/v1/admin/policy", body).await.expect(200);
    app
}

async fn try_on(app: &TestApp, policy: &Value, more: Value) -> Answered {
    let mut body = json!({ "policy": policy, "prune": ["limits"], "since": MIDNIGHT });
    for (field, value) in more.as_object().unwrap() {
        body[field] = value.clone();
    }
    app.post(TEST, body).await
}

#[tokio::test]
async fn a_recorded_day_names_exactly_those_whom_the_proposed_limits_refuse_when_the_day_is_lived_under_them()
{
    let steps = traffic();
    let recorded = under(&wide()).await;
    let then = live(&recorded, &steps).await;
    let fresh = under(&tight()).await;
    let refused = live(&fresh, &steps).await;
    let tried = try_on(&recorded, &tight(), json!({})).await.expect(200);
    assert_eq!(Refusals::of(&tried), refused);
    let limits: BTreeSet<&str> = refused.rows.keys().map(|(limit, ..)| limit.as_str()).collect();
    assert_eq!(limits, BTreeSet::from(REFUSING), "the day tells nothing of a limit that refuses nobody");
    assert!(then.decisions > 0 && then.rows.keys().all(|(limit, ..)| limit == "calls"), "{then:?}");
    assert_eq!(tried.body["refused_then"], then.decisions);
    let again = try_on(&recorded, &wide(), json!({})).await.expect(200);
    assert_eq!(Refusals::of(&again), then, "the policy in force refuses those whom it refused");
    assert_eq!(json!([again.body["newly_refused"], again.body["newly_admitted"]]), json!([0, 0]));
    recorded.finish().await;
    fresh.finish().await;
}

/// The small policy as a file, with this limit of pages a day.
fn a_day_of(capacity: &str) -> Value {
    json!({ "plans": [{ "id": "plan", "limits": [day_of(capacity)] }] })
}

#[tokio::test]
async fn what_was_used_before_the_record_began_counts_and_refusals_are_named_from_the_given_time_on() {
    let app = an_app().at("2026-03-10T06:00:00Z").with("decisions.sample_percent", 0).start().await;
    app.with_plan(json!([day_of("100")]), json!([quota_of("100")])).await;
    app.use_pages("before", 5).await.expect(201);
    let sampling = [("decisions.sample_percent", "100".to_owned())];
    let another = app.another_with(&[tollgate::app::Role::Http], &sampling).await;
    let there = app.caller().at(another.url());
    for hour in 7..12 {
        app.move_clock(&format!("2026-03-10T{hour:02}:30:00Z")).await;
        there.post_keyed(USAGE, &format!("at {hour}"), pages(1)).await.expect(201);
    }
    let since = |time: &str| json!({ "policy": a_day_of("7"), "since": time });
    let tried = there.post(TEST, since("2026-03-10T06:00:00Z")).await.expect(200);
    let hours = |tried: &Answered| -> Vec<String> {
        let rows = tried.body["data"].as_array().unwrap().iter();
        rows.map(|row| format!("{} {} {}", row["limit"], row["hour"], row["admitted_then"])).collect()
    };
    let named = |hour: u32| format!("\"day\" \"2026-03-10T{hour:02}:00:00Z\" 1");
    assert_eq!(hours(&tried), [named(9), named(10), named(11)]);
    let tried = there.post(TEST, since("2026-03-10T10:00:00Z")).await.expect(200);
    assert_eq!(hours(&tried), [named(10), named(11)]);
    let quota = json!({ "plans": [{ "id": "plan", "quotas": [quota_of("9")] }] });
    let body = json!({ "policy": quota, "since": "2026-03-10T06:00:00Z", "until": "2026-03-10T11:30:00Z" });
    let tried = there.post(TEST, body.clone()).await.expect(200);
    assert_eq!(hours(&tried), [""; 0], "the quota has four after the five");
    let tried = there.post(TEST, body.with("until", "2026-03-10T11:30:00.001Z")).await.expect(200);
    assert_eq!(hours(&tried), [named(11).replace("day", "quota:page")]);
    another.stop().await;
    app.finish().await;
}

#[tokio::test]
async fn a_tenant_that_is_not_sampled_is_named_and_what_is_wrong_with_the_file_has_its_place() {
    let app = an_app().with("decisions.sample_percent", 0).with("decisions.tenants", "acme").start().await;
    app.with_day_of("20").await;
    app.define("tenants/other", json!({ "plan": "plan" })).await;
    app.use_pages("one", 3).await.expect(201);
    app.post_keyed(USAGE, "two", pages(3).of("other")).await.expect(201);
    app.post(RESERVATIONS, pages(9).with("dry_run", true)).await.expect(200);
    let body =
        json!({ "policy": a_day_of("2"), "since": "2020-01-01T00:00:00Z", "tenants": ["acme", "other"] });
    let tried = app.post(TEST, body.clone()).await.expect(200);
    let told = ["tenants", "decisions", "refused", "newly_refused", "not_sampled", "has_more"];
    assert_eq!(json!(told.map(|field| &tried.body[field])), json!([1, 1, 1, 1, ["other"], false]));
    let first = tried.text("/data/0/first_decision");
    assert_eq!(app.get(&format!("/v1/decisions/{first}")).await.expect(200).text("/lines/0/amount"), "3");
    let none = app.post(TEST, body.clone().with("after", "acme")).await.expect(200);
    assert_eq!(none.body["tenants"], 0);
    let wrong = body.clone().with("policy", a_day_of("-2"));
    assert_eq!(app.post(TEST, wrong).await.expect(422).pointers(), ["/policy/plans/0/limits/0/capacity"]);
    let late = body.with("until", "2019-01-01T00:00:00Z");
    assert_eq!(app.post(TEST, late).await.expect(422).pointers(), ["/since"]);
    assert_eq!(app.quota().await.text("/limits/0/capacity"), "20", "nothing was changed");
    app.finish().await;
}

#[tokio::test]
async fn what_was_refused_under_a_ban_has_no_part_in_a_trial() {
    let app = an_app().with("decisions.sample_percent", 100).start().await;
    app.with_day_of("20").await;
    app.use_pages("one", 3).await.expect(201);
    app.define("bans/spam", json!({ "tenant": "acme", "reason": "spam" })).await;
    app.post(RESERVATIONS, pages(19)).await.is_problem(429, "banned");
    app.delete("/v1/admin/bans/spam?tenant=acme").await.expect(204);
    until(|| app.post_keyed(USAGE, "two", pages(2)), |answer| answer.status == 201).await;
    let body = json!({ "policy": a_day_of("20"), "since": "2020-01-01T00:00:00Z" });
    let tried = app.post(TEST, body.clone()).await.expect(200);
    let told = ["refused", "refused_then", "newly_refused", "newly_admitted"];
    assert_eq!(json!(told.map(|field| &tried.body[field])), json!([0, 0, 0, 0]), "{tried:?}");
    let tried = app.post(TEST, body.with("policy", a_day_of("4"))).await.expect(200);
    assert_eq!(json!(told.map(|field| &tried.body[field])), json!([1, 0, 1, 0]), "{tried:?}");
    app.finish().await;
}

#[tokio::test]
async fn a_meter_that_the_file_leaves_without_limit_and_denies_is_named() {
    let app = an_app().with("decisions.sample_percent", 100).start().await;
    app.with_day_of("20").await;
    app.use_pages("one", 3).await.expect(201);
    let file = json!({
        "meters": [{ "id": "page", "unit": "page", "without_limit": "deny" }], "plans": [{ "id": "plan", "limits": [] }]
    });
    let tried = try_on(&app, &file, json!({ "since": "2020-01-01T00:00:00Z" })).await.expect(200);
    assert_eq!(tried.text("/data/0/limit"), "without_limit:page");
    app.finish().await;
}
