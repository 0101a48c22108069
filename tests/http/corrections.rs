//! Adjustments of usage in the open period: the gate's counters and the books are corrected together, once.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};

use super::in_use::{connect, hold_up_the_writer, waits_for_the_lock};
use crate::jobs::statements::faults;
use crate::ledger::{as_owner, rows};
use crate::support::app::*;
use crate::support::wait::wait_for;

const ADJUSTMENTS: &str = "/v1/adjustments";
const ENTRIES: &str = "SELECT to_char(period_start AT TIME ZONE 'UTC', 'YYYY-MM') AS period, credit, debit, amount::float8 AS a, class, \
    happened_at AT TIME ZONE 'UTC' AS at FROM entries WHERE corrected OR 'adjusted' IN (credit, debit) ORDER BY booked_at, amount";
/// A run that broke off before it noted that the gate has done it.
const UNNOTED: &str = "UPDATE adjustments SET state = 'approved', booked_at = NULL, booked_amount = NULL, period_start = NULL, booked_in = NULL";
const GRACE: Duration = Duration::from_secs(3600);

/// Tenant `acme` with fifty pages a month, forty a day and thirty an hour; in UTC, on the tenth of March, where no job
/// runs by itself.
async fn app() -> TestApp {
    let app = an_app().at("2026-03-10T12:00:00Z").without_jobs().start().await;
    let hour = json!({ "id": "hour", "meter": "page", "window": "hour", "capacity": "30" });
    app.with_plan(json!([day_of("40"), hour]), json!([quota_of("50")])).await;
    app
}

fn correction(amount: &str, at: &str) -> Value {
    json!({
        "tenant": "acme", "meter": "page", "effect": "usage", "amount": amount, "happened_at": at,
        "reason": "counted wrongly", "reference": "ticket 1"
    })
}

pub async fn posted(app: &TestApp, key: &str, amount: &str, at: &str) -> Value {
    app.post_keyed(ADJUSTMENTS, key, correction(amount, at)).await.expect(201).body
}

/// As [`posted`], once it is booked or waits for another person.
pub async fn corrected(app: &TestApp, key: &str, amount: &str, at: &str) -> Value {
    carried_out(app, posted(app, key, amount, at).await).await
}

/// What is approved, once it is booked: a busy ledger may leave that to the job.
pub async fn carried_out(app: &TestApp, adjustment: Value) -> Value {
    if adjustment["status"] != "approved" {
        return adjustment;
    }
    follow(app).await;
    app.get(&format!("{ADJUSTMENTS}/{}", adjustment["id"].as_str().unwrap())).await.expect(200).body
}

/// What the day, the hour and the quota have consumed, and what remains of the quota.
pub async fn consumed(app: &TestApp) -> [String; 4] {
    let read = app.quota().await;
    let of = |id: &str| {
        let limits = read.body["limits"].as_array().unwrap();
        let found = limits.iter().find(|limit| limit["id"] == id);
        found.map_or("none", |limit| limit["consumed"].as_str().unwrap()).to_owned()
    };
    let quota = |field: &str| read.text(&format!("/quotas/0/{field}")).to_owned();
    [of("day"), of("hour"), quota("consumed"), quota("remaining")]
}

#[tokio::test(flavor = "multi_thread")]
async fn less_use_of_the_open_period_is_given_back_by_the_gate_and_the_books_once() {
    let app = app().await;
    app.use_pages("a", 30).await.expect(201);
    app.use_pages("b", 1).await.is_problem(429, "quota_exceeded");
    app.drained().await;
    let booked = corrected(&app, "less", "-5", "2026-03-10T12:00:00Z").await;
    for (field, expected) in [
        ("status", "booked"),
        ("booked_amount", "-5"),
        ("period_start", "2026-03-01T00:00:00Z"),
        ("booked_in", "2026-03-01T00:00:00Z"),
    ] {
        assert_eq!(booked[field], expected, "{field}: {booked}");
    }
    let entries = ["2026-03 consumed available 5 usage 2026-03-10T12:00:00"];
    assert_eq!(rows(&app.database, ENTRIES).await, entries);
    assert_eq!(consumed(&app).await, ["25", "25", "25", "25"]);
    let again =
        app.post_keyed(ADJUSTMENTS, "less", correction("-5", "2026-03-10T12:00:00Z")).await.expect(200);
    assert_eq!(again.body["replayed"], true);
    app.redis.flush().await;
    assert_eq!(consumed(&app).await, ["25", "25", "25", "25"], "restored from the books");
    app.use_pages("c", 5).await.expect(201);
    app.use_pages("d", 1).await.is_problem(429, "quota_exceeded");
    let shown = app.get("/v1/tenants/acme/entries").await.expect(200).body;
    let is_corrected = |entry: &&Value| entry["flags"] == json!(["corrected"]);
    assert_eq!(shown["data"].as_array().unwrap().iter().filter(is_corrected).count(), 1, "{shown}");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn more_use_is_never_refused_and_goes_beyond_limits_and_quota() {
    let app = app().await;
    app.use_pages("a", 30).await.expect(201);
    app.drained().await;
    corrected(&app, "more", "25", "2026-03-10T12:00:00Z").await;
    assert_eq!(consumed(&app).await, ["55", "55", "55", "0"]);
    assert_eq!(
        rows(&app.database, ENTRIES).await,
        ["2026-03 available consumed 25 usage 2026-03-10T12:00:00"]
    );
    app.use_pages("b", 1).await.is_problem(429, "quota_exceeded");
    corrected(&app, "less", "-55", "2026-03-10T12:00:00Z").await;
    assert_eq!(consumed(&app).await, ["0", "0", "0", "50"]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_windows_that_are_current_move_and_the_period_does() {
    let app = app().await;
    app.use_pages("noon", 10).await.expect(201);
    app.move_clock("2026-03-10T13:30:00Z").await;
    app.use_pages("later", 3).await.expect(201);
    app.drained().await;
    corrected(&app, "noon", "-4", "2026-03-10T12:10:00Z").await;
    assert_eq!(consumed(&app).await, ["9", "3", "9", "41"]);
    app.move_clock("2026-03-11T08:00:00Z").await;
    corrected(&app, "yesterday", "-2", "2026-03-10T13:00:00Z").await;
    assert_eq!(consumed(&app).await[2..], ["7", "43"]);
    app.use_pages("today", 30).await.expect(201);
    app.drained().await;
    app.redis.flush().await;
    assert_eq!(consumed(&app).await, ["30", "30", "37", "13"]);
    let hours = "SELECT hour_at AT TIME ZONE 'UTC' AS at, consumed::float8 AS c FROM usage_hourly WHERE subject = 0 ORDER BY 1";
    assert_eq!(
        rows(&app.database, hours).await,
        ["2026-03-10T12:00:00 6", "2026-03-10T13:00:00 1", "2026-03-11T08:00:00 30"]
    );
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_more_is_taken_back_than_was_used_then() {
    let app = app().await;
    app.use_pages("a", 10).await.expect(201);
    app.drained().await;
    let noon = "2026-03-10T12:00:00Z";
    let refused = async |key: &str, amount: &str, at: &str| {
        let refused = app.post_keyed(ADJUSTMENTS, key, correction(amount, at)).await;
        refused.is_problem(422, "validation_failed");
        assert_eq!(refused.pointers(), ["/amount"], "{refused:?}");
    };
    refused("all and one", "-11", noon).await;
    refused("then", "-1", "2026-03-10T09:00:00Z").await;
    corrected(&app, "some", "-6", noon).await;
    refused("twice", "-5", noon).await;
    corrected(&app, "rest", "-4", noon).await;
    assert_eq!(consumed(&app).await, ["0", "0", "0", "50"]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_just_used_may_be_taken_back_before_it_is_booked() {
    let app = app().await;
    let holder = hold_up_the_writer(&app).await;
    let (answer, ()) =
        tokio::join!(app.post_keyed(ADJUSTMENTS, "less", correction("-3", "2026-03-10T12:00:00Z")), async {
            waits_for_the_lock(&connect(&app).await, "cursors").await;
            app.use_pages("a", 3).await.expect(201);
            holder.batch_execute("ROLLBACK").await.unwrap();
        });
    assert_eq!(carried_out(&app, answer.expect(201).body).await["status"], "booked");
    assert_eq!(consumed(&app).await, ["0", "0", "0", "50"]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_reservation_used_is_corrected_for_its_subject_and_its_operation() {
    let app = an_app().at("2026-03-10T12:00:00Z").without_jobs().start().await;
    let per_user = json!({
        "id": "user", "meter": "page", "window": "day", "capacity": "20", "scope": "subject", "subject_kind": "user"
    });
    app.with_plan(json!([per_user, day_of("40")]), json!([quota_of("50")])).await;
    let costs = json!([{ "meter": "page", "weights": { "pages": "1" } }]);
    app.define("operations/scan", json!({ "costs": costs })).await;
    app.post_keyed(USAGE, "others", pages(9).by("ben")).await.expect(201);
    let scan =
        json!({ "tenant": "acme", "subject": "ada", "operation": "scan", "attributes": { "pages": 12 } });
    let used = app.post_keyed(USAGE, "ada", scan).await.expect(201);
    app.drained().await;
    let noon = "2026-03-10T12:00:00Z";
    let of_ada = |amount: &str| correction(amount, noon).with("corrects", used.text("/id"));
    let refused = app.post_keyed(ADJUSTMENTS, "too much", of_ada("-13")).await;
    assert_eq!(refused.pointers(), ["/amount"], "ben's pages are not hers: {refused:?}");
    let posted = app.post_keyed(ADJUSTMENTS, "less", of_ada("-5")).await.expect(201);
    assert_eq!(carried_out(&app, posted.body).await["status"], "booked");
    let left = async || {
        let dry = app.post(RESERVATIONS, pages(1).by("ada").with("dry_run", true)).await.expect(200);
        let limits = dry.body["limits"].as_array().unwrap().clone();
        let user = limits.into_iter().find(|limit| limit["id"] == "user").unwrap();
        user["consumed"].as_str().unwrap().to_owned()
    };
    assert_eq!(left().await, "7");
    app.redis.flush().await;
    assert_eq!(left().await, "7", "restored from the books");
    let hours = "SELECT operation, least(subject, 1) AS named, sum(consumed)::float8 AS c FROM usage_hourly GROUP BY 1, 2 ORDER BY 1, 2";
    assert_eq!(rows(&app.database, hours).await, [" 0 9", " 1 9", "scan 0 7", "scan 1 7"]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn use_of_an_archived_tenant_is_corrected_and_of_a_meter_that_is_not_booked_there_is_none() {
    let app = app().await;
    app.define("meters/call", json!({ "unit": "call", "booked": false })).await;
    app.use_pages("a", 10).await.expect(201);
    app.drained().await;
    let noon = "2026-03-10T12:00:00Z";
    let light = app.post_keyed(ADJUSTMENTS, "calls", correction("1", noon).with("meter", "call")).await;
    light.is_problem(422, "validation_failed");
    assert_eq!(light.pointers(), ["/meter"], "{light:?}");
    app.define("tenants/acme", json!({ "plan": "plan", "archived": true })).await;
    let booked = corrected(&app, "less", "-4", noon).await;
    assert_eq!((&booked["status"], &booked["booked_amount"]), (&json!("booked"), &json!("-4")));
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_taken_back_unburns_grants_against_the_order_in_which_they_burnt() {
    let app = app().await;
    let grant = json!({
        "tenant": "acme", "meter": "page", "amount": "10", "kind": "paid", "priority": 1, "expires_at": "2026-04-01T00:00:00Z"
    });
    let id = app.post_keyed("/v1/admin/grants", "g", grant).await.expect(201).text("/id").to_owned();
    app.use_pages("a", 15).await.expect(201);
    app.drained().await;
    corrected(&app, "less", "-7", "2026-03-10T12:00:00Z").await;
    let voided = app.post(&format!("/v1/admin/grants/{id}/void"), json!({})).await.expect(200);
    assert_eq!(voided.text("/unburnt"), "2", "five of what is included, then two of the grant");
    assert_eq!(consumed(&app).await[2..], ["8", "50"]);
    app.finish().await;
}

/// Grants ten pages that burn first, until the eleventh of March. Returns the id.
pub async fn granted(app: &TestApp) -> String {
    let grant = json!({
        "tenant": "acme", "meter": "page", "amount": "10", "kind": "paid", "priority": 1, "expires_at": "2026-03-11T00:00:00Z"
    });
    app.post_keyed("/v1/admin/grants", "g", grant).await.expect(201).text("/id").to_owned()
}

/// Follows grants, and no adjustments, until `count` of them are settled.
pub async fn settled(app: &TestApp, count: &str) {
    wait_for("the grant has ended", Duration::from_secs(30), async || {
        app.app().operations.grants.follow().await.ok()?;
        let settled = rows(&app.database, "SELECT count(*) FROM grants WHERE settled_at IS NOT NULL").await;
        (settled == [count]).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn all_use_since_a_grant_was_voided_may_be_taken_back() {
    let app = app().await;
    let id = granted(&app).await;
    app.post(&format!("/v1/admin/grants/{id}/void"), json!({})).await.expect(200);
    settled(&app, "1").await;
    app.use_pages("a", 30).await.expect(201);
    app.drained().await;
    corrected(&app, "less", "-30", "2026-03-10T12:00:00Z").await;
    assert_eq!(consumed(&app).await, ["0", "0", "0", "50"]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_correction_of_which_no_adjustment_knows_is_named() {
    let app = app().await;
    app.use_pages("a", 15).await.expect(201);
    app.drained().await;
    corrected(&app, "less", "-5", "2026-03-10T12:00:00Z").await;
    assert_eq!(faults(&app).await, Vec::<String>::new());
    as_owner(&app.database, &UNNOTED.replace("approved", "declined")).await.unwrap();
    let named = faults(&app).await.concat();
    assert!(named.contains("which no adjustment has the gate do"), "{named}");
    app.leave_unbalanced("an adjustment was declined by hand");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_one_waits_for_another_person_and_is_booked_then() {
    let app = app().await;
    app.define("plans/plan", json!({ "limits": [], "quotas": [quota_of("50").with("mode", "soft")] })).await;
    app.use_pages("a", 3000).await.expect(201);
    app.drained().await;
    let pending = corrected(&app, "large", "-1500", "2026-03-10T12:00:00Z").await;
    assert_eq!(pending["status"], "pending");
    assert_eq!(app.quota().await.text("/quotas/0/consumed"), "3000");
    let approve = format!("{ADJUSTMENTS}/{}/approve", pending["id"].as_str().unwrap());
    let other = app.make_key("finance", None).await;
    let approved = other.post(&approve, json!({})).await.expect(200);
    assert_eq!(carried_out(&app, approved.body).await["status"], "booked");
    assert_eq!(app.quota().await.text("/quotas/0/consumed"), "1500");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_the_gate_is_away_it_is_approved_and_the_job_carries_it_out_once() {
    let app = app().await;
    app.use_pages("a", 20).await.expect(201);
    app.drained().await;
    let frozen = app.redis.freeze();
    let posted = posted(&app, "less", "-5", "2026-03-10T12:00:00Z").await;
    assert_eq!(posted["status"], "approved");
    drop(frozen);
    follow(&app).await;
    assert_eq!(consumed(&app).await, ["15", "15", "15", "35"]);
    as_owner(&app.database, UNNOTED).await.unwrap();
    follow(&app).await;
    assert_eq!(
        consumed(&app).await,
        ["15", "15", "15", "35"],
        "a run that broke off before it noted it counts nothing again"
    );
    as_owner(&app.database, UNNOTED).await.unwrap();
    app.redis.flush().await;
    follow(&app).await;
    assert_eq!(consumed(&app).await, ["15", "15", "15", "35"], "nor where the gate has lost its memory");
    as_owner(&app.database, "UPDATE adjustments SET booked_amount = -4").await.unwrap();
    let found = faults(&app).await;
    assert!(found.iter().any(|fault| fault.contains("is booked with -4")), "{found:?}");
    as_owner(&app.database, "UPDATE adjustments SET booked_amount = -5").await.unwrap();
    app.finish().await;
}

/// Runs the job until nothing is left to be carried out.
pub async fn follow(app: &TestApp) {
    wait_for("the adjustment is booked", Duration::from_secs(20), async || {
        app.app().operations.adjustments.follow().await.ok()?;
        rows(&app.database, "SELECT id FROM adjustments WHERE state = 'approved'")
            .await
            .is_empty()
            .then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_whose_period_is_closed_before_the_gate_is_back_is_booked_by_the_ledger() {
    let app = app().await;
    app.use_pages("a", 20).await.expect(201);
    app.drained().await;
    let frozen = app.redis.freeze();
    assert_eq!(posted(&app, "less", "-5", "2026-03-10T12:00:00Z").await["status"], "approved");
    drop(frozen);
    app.move_clock("2026-04-01T00:59:30Z").await;
    assert_eq!(app.app().operations.adjustments.follow().await.unwrap(), 0, "it closes too soon");
    app.move_clock("2026-04-01T01:00:00Z").await;
    wait_for("the period is closed", Duration::from_secs(20), async || {
        let closed = app.app().operations.periods.close(Default::default(), GRACE).await.ok()?;
        (closed.closed == 1).then_some(())
    })
    .await;
    follow(&app).await;
    assert_eq!(
        rows(&app.database, ENTRIES).await,
        ["2026-04 consumed adjusted 5 correction 2026-03-10T12:00:00"]
    );
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn in_the_hour_of_grace_the_period_that_has_ended_is_corrected_and_no_counter_of_the_new_one() {
    let app = app().await;
    app.use_pages("march", 20).await.expect(201);
    app.move_clock("2026-04-01T00:20:00Z").await;
    app.use_pages("april", 7).await.expect(201);
    app.drained().await;
    corrected(&app, "march", "-5", "2026-03-10T12:00:00Z").await;
    assert_eq!(consumed(&app).await, ["7", "7", "7", "43"]);
    app.move_clock("2026-04-01T01:00:00Z").await;
    app.app().operations.periods.close(Default::default(), GRACE).await.unwrap();
    assert_eq!(rows(&app.database, "SELECT lapsed::float8 AS l FROM period_closures").await, ["35"]);
    as_owner(&app.database, UNNOTED).await.unwrap();
    follow(&app).await;
    let once = ["2026-03 consumed available 5 usage 2026-03-10T12:00:00"];
    assert_eq!(rows(&app.database, ENTRIES).await, once, "the gate has done it before the close");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_is_used_held_and_corrected_in_whatever_order_the_gate_equals_the_books() {
    let app = app().await;
    let limits =
        json!([day_of("100000"), { "id": "hour", "meter": "page", "window": "hour", "capacity": "5000" }]);
    app.define("plans/plan", json!({ "limits": limits, "quotas": [quota_of("2000").with("mode", "soft")] }))
        .await;
    let mut random = StdRng::seed_from_u64(86);
    let (mut held, mut hour) = (Vec::new(), 12);
    for step in 0..80 {
        let amount = random.random_range(1..40);
        match random.random_range(0..7) {
            0 => held.push(app.hold(amount).await),
            1 if !held.is_empty() => {
                let id = held.swap_remove(random.random_range(0..held.len()));
                app.consume(&id, &random.random_range(0..50).to_string()).await;
            }
            2 if hour < 22 && step % 3 == 0 => {
                hour += 1;
                app.move_clock(&format!("2026-03-10T{hour}:00:00Z")).await;
            }
            3 if step % 5 == 0 => {
                app.drained().await;
                app.redis.flush().await;
            }
            4 | 5 => {
                app.drained().await;
                let at = format!("2026-03-10T{}:00:00Z", random.random_range(12..=hour));
                let sign = if random.random_bool(0.6) { -1 } else { 1 };
                let body = correction(&(sign * amount).to_string(), &at);
                let answer = app.post_keyed(ADJUSTMENTS, &format!("c{step}"), body).await;
                assert!(matches!(answer.status, 201 | 422), "{answer:?}");
            }
            _ => {
                app.use_pages(&format!("u{step}"), amount).await.expect(201);
            }
        }
    }
    follow(&app).await;
    app.drained().await;
    let unbooked = "SELECT id FROM adjustments WHERE state <> 'booked'";
    assert_eq!(rows(&app.database, unbooked).await, [""; 0]);
    app.finish().await;
}
