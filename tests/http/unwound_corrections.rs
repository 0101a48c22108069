//! Use of the open period that is taken back from before a grant has ended: the grant lapses, or is voided, by as much
//! more, once, and the gate lets through no unit that it will lack.

use std::time::Duration;

use rstest::rstest;
use rust_decimal::Decimal;
use serde_json::{Value, json};
use tollgate::domain::grant::GrantId;
use tollgate::domain::signed_amount::SignedAmount;
use tollgate::ledger::{AdjustmentGrant, Lowered};
use tollgate::writer::retry;

use super::corrections::{carried_out, corrected, follow, granted, posted, settled};
use crate::jobs::statements::faults;
use crate::ledger::{as_owner, rows};
use crate::support::app::*;
use crate::support::wait::wait_for;

const MARCH_10: &str = "2026-03-10T12:00:00Z";
const MARCH_12: &str = "2026-03-12T12:00:00Z";
const UNBURNT: &str = "SELECT settled_amount::float8 AS a FROM grants ORDER BY expires_at";
const LAPSES: &str = "SELECT debit, amount::float8 AS a, class, happened_at AT TIME ZONE 'UTC' AS at FROM entries \
    WHERE debit IN ('lapsed', 'voided') ORDER BY happened_at, step";
const MONEY: &str = "SELECT credit, debit, amount::float8 AS a FROM entries WHERE meter LIKE 'money:%' ORDER BY happened_at, step, leg";
const BURNS: &str =
    "SELECT amount::float8 AS a, recognised::float8 AS r, forfeited::float8 AS f FROM grant_burns";

/// Tenant `acme` with fifty pages a month, in UTC, on the tenth of March, where no job runs by itself.
async fn app() -> TestApp {
    let app = an_app().at(MARCH_10).without_jobs().start().await;
    app.with_plan(json!([]), json!([quota_of("50")])).await;
    app
}

/// Grants ten pages that burn before what is included.
async fn given(app: &TestApp, key: &str, until: &str, body: Value) -> String {
    let grant = json!({ "tenant": "acme", "meter": "page", "amount": "10", "kind": "paid", "priority": 1, "expires_at": until });
    let body =
        body.as_object().unwrap().iter().fold(grant, |grant, (name, value)| grant.with(name, value.clone()));
    app.post_keyed("/v1/admin/grants", key, body).await.expect(201).text("/id").to_owned()
}

async fn used(app: &TestApp, key: &str, pages: u64) {
    app.use_pages(key, pages).await.expect(201);
    app.drained().await;
}

/// Moves the clock, and ends what has ended by then: so many grants in all.
async fn on(app: &TestApp, instant: &str, ended: &str) {
    app.move_clock(instant).await;
    settled(app, ended).await;
}

/// Uses exactly what remains of the quota: no page more is let through.
async fn uses_all(app: &TestApp, pages: u64) {
    assert_eq!(app.quota().await.text("/quotas/0/remaining"), pages.to_string());
    app.use_pages("all", pages).await.expect(201);
    assert_eq!(app.use_pages("more", 1).await.status, 429);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grant_that_has_ended_lapses_again_by_what_is_taken_back_from_before() {
    let app = app().await;
    granted(&app).await;
    used(&app, "a", 15).await;
    on(&app, MARCH_12, "1").await;
    assert_eq!(rows(&app.database, UNBURNT).await, ["0"]);
    used(&app, "b", 2).await;
    assert_eq!(corrected(&app, "less", "-9", MARCH_10).await["status"], "booked");
    assert_eq!(
        rows(&app.database, UNBURNT).await,
        ["2"],
        "two, five of what is included, then two of the grant"
    );
    let lapsed = ["lapsed 2 grant 2026-03-11T00:00:00"];
    assert_eq!(rows(&app.database, LAPSES).await, lapsed, "as of its end");
    corrected(&app, "again", "-3", MARCH_10).await;
    assert_eq!(rows(&app.database, UNBURNT).await, ["5"]);
    assert_eq!(faults(&app).await, [""; 0]);
    app.redis.flush().await;
    uses_all(&app, 50).await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_latest_use_is_taken_back_first_over_two_grants_that_have_ended() {
    let app = app().await;
    given(&app, "first", "2026-03-11T00:00:00Z", json!({})).await;
    used(&app, "a", 8).await;
    on(&app, MARCH_12, "1").await;
    given(&app, "second", "2026-03-13T00:00:00Z", json!({})).await;
    used(&app, "b", 6).await;
    on(&app, "2026-03-14T12:00:00Z", "2").await;
    used(&app, "c", 2).await;
    assert_eq!(rows(&app.database, UNBURNT).await, ["2", "4"]);
    corrected(&app, "less", "-5", MARCH_10).await;
    assert_eq!(
        rows(&app.database, UNBURNT).await,
        ["2", "7"],
        "two of what is included, three of the second"
    );
    corrected(&app, "and less", "-5", MARCH_12).await;
    assert_eq!(rows(&app.database, UNBURNT).await, ["4", "10"], "three of the second, two of the first");
    corrected(&app, "more", "4", MARCH_10).await;
    assert_eq!(rows(&app.database, UNBURNT).await, ["4", "10"], "more use burns what counts now");
    assert_eq!(faults(&app).await, [""; 0]);
    uses_all(&app, 46).await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grant_that_has_begun_since_keeps_what_is_left_of_it() {
    let app = app().await;
    granted(&app).await;
    used(&app, "a", 8).await;
    on(&app, MARCH_12, "1").await;
    given(&app, "next", "2026-03-20T00:00:00Z", json!({})).await;
    corrected(&app, "less", "-3", MARCH_10).await;
    let left = app.get("/v1/tenants/acme/quota").await.expect(200);
    assert_eq!(left.text("/quotas/0/remaining"), "60", "{left:?}");
    assert_eq!(
        rows(&app.database, "SELECT settled_amount::float8 AS a FROM grants WHERE settled_at IS NOT NULL")
            .await,
        ["5"]
    );
    used(&app, "b", 4).await;
    on(&app, "2026-03-20T00:00:00Z", "2").await;
    assert_eq!(rows(&app.database, UNBURNT).await, ["5", "6"], "four have burnt of the next one");
    assert_eq!(faults(&app).await, [""; 0]);
    uses_all(&app, 50).await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_earned_of_a_grant_that_lapses_again_is_forfeited() {
    let app = app().await;
    given(&app, "sold", "2026-03-11T00:00:00Z", json!({ "paid_amount": "20", "currency": "EUR" })).await;
    used(&app, "a", 8).await;
    on(&app, MARCH_12, "1").await;
    assert_eq!(rows(&app.database, BURNS).await, ["8 16 4"]);
    corrected(&app, "less", "-3", MARCH_10).await;
    assert_eq!(rows(&app.database, BURNS).await, ["5 10 10"]);
    let booked = [
        "deferred receivable 20",
        "revenue deferred 16",
        "breakage deferred 4",
        "deferred revenue 6",
        "breakage deferred 6",
    ];
    assert_eq!(rows(&app.database, MONEY).await, booked);
    assert_eq!(faults(&app).await, [""; 0]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_earned_of_a_grant_that_was_voided_is_given_back_by_the_same_note() {
    let app = app().await;
    let until = "2026-04-01T00:00:00Z";
    let id = given(&app, "sold", until, json!({ "paid_amount": "20", "currency": "EUR" })).await;
    used(&app, "a", 10).await;
    app.post(&format!("/v1/admin/grants/{id}/void"), json!({})).await.expect(200);
    settled(&app, "1").await;
    assert_eq!(rows(&app.database, BURNS).await, ["10 20 0"], "nothing is given back");
    app.move_clock(MARCH_12).await;
    corrected(&app, "less", "-3", MARCH_10).await;
    let voided = ["voided 3 grant 2026-03-10T12:00:00"];
    assert_eq!(
        (rows(&app.database, UNBURNT).await, rows(&app.database, LAPSES).await),
        (vec!["3".into()], voided.map(String::from).into())
    );
    assert_eq!(rows(&app.database, BURNS).await, ["7 14 0"]);
    app.move_clock("2026-04-02T12:00:00Z").await;
    let issued = crate::jobs::statements::run(&app).await;
    assert_eq!((issued.statements, issued.notes), (1, 1));
    let note = crate::jobs::statements::statement(&app, 2).await;
    assert_eq!((&note["corrects"], &note["total"]), (&json!(1), &json!("-6.00")));
    assert_eq!(faults(&app).await, [""; 0]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_close_finds_what_lapsed_again_and_rolls_over_what_is_left() {
    let app = app().await;
    app.with_plan(json!([]), json!([quota_of("50").with("max_rollover", "50")])).await;
    granted(&app).await;
    used(&app, "a", 15).await;
    on(&app, MARCH_12, "1").await;
    app.move_clock("2026-04-01T00:30:00Z").await;
    corrected(&app, "in the grace", "-7", MARCH_10).await;
    app.move_clock("2026-04-01T02:00:00Z").await;
    app.drained().await;
    app.app().operations.periods.close(Default::default(), Duration::from_secs(3600)).await.unwrap();
    let closed = "SELECT lapsed::float8 AS l, rolled::float8 AS r FROM period_closures";
    assert_eq!(rows(&app.database, closed).await, ["0 50"], "eight have burnt of the grant, nothing else");
    assert_eq!(rows(&app.database, UNBURNT).await, ["2"]);
    assert_eq!(faults(&app).await, [""; 0]);
    uses_all(&app, 100).await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn until_it_is_booked_no_more_is_let_through_than_will_be_left() {
    let app = app().await;
    granted(&app).await;
    used(&app, "a", 8).await;
    on(&app, MARCH_12, "1").await;
    let frozen = app.redis.freeze();
    let less = posted(&app, "less", "-5", MARCH_10).await;
    assert_eq!(less["status"], "approved");
    // The gate counts it, and the books refuse its event, which a gate that goes on may append at once.
    as_owner(&app.database, "ALTER TABLE unwindings ADD CONSTRAINT refused CHECK (amount < 0)")
        .await
        .unwrap();
    drop(frozen);
    let ledger = &app.app().ledger;
    wait_for("its event is in quarantine", Duration::from_secs(30), async || {
        app.app().operations.adjustments.follow().await.ok();
        (ledger.count_quarantined().await.unwrap() == 1).then_some(())
    })
    .await;
    assert_eq!(app.quota().await.text("/quotas/0/consumed"), "3");
    app.use_pages("more than will be left", 51).await.is_problem(503, "gate_unavailable");
    app.use_pages("all that will be left", 50).await.expect(201);
    app.drained().await;
    as_owner(&app.database, "ALTER TABLE unwindings DROP CONSTRAINT refused").await.unwrap();
    let event = ledger.quarantined(false, None, 10).await.unwrap().remove(0);
    assert_eq!(retry(ledger, event.partition, event.outbox_id, "test").await.unwrap().resolved, 1);
    assert_eq!(carried_out(&app, less).await["status"], "booked");
    // Out of the quarantine it counts where the outbox is by then: what was used since is taken back first.
    assert_eq!(rows(&app.database, UNBURNT).await, ["2"]);
    assert_eq!(app.use_pages("more", 6).await.status, 429);
    app.use_pages("the rest", 5).await.expect(201);
    assert_eq!(faults(&app).await, [""; 0]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_breaks_off_it_is_booked_once() {
    let app = app().await;
    granted(&app).await;
    used(&app, "a", 15).await;
    on(&app, MARCH_12, "1").await;
    let broken = "CREATE FUNCTION broken() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'broken off'; END $$; \
                  CREATE TRIGGER broken BEFORE UPDATE ON unwindings FOR EACH ROW EXECUTE FUNCTION broken()";
    as_owner(&app.database, broken).await.unwrap();
    assert_eq!(corrected(&app, "less", "-7", MARCH_10).await["status"], "booked");
    assert_eq!(rows(&app.database, UNBURNT).await, ["0"], "what follows is left to the job");
    assert_eq!(faults(&app).await, [""; 0], "what is not settled yet is no fault");
    app.use_pages("all that the bound leaves", 45).await.expect(201);
    app.drained().await;
    as_owner(&app.database, "DROP TRIGGER broken ON unwindings").await.unwrap();
    app.app().operations.grants.follow().await.unwrap();
    let once = rows(&app.database, LAPSES).await;
    assert_eq!(once, ["lapsed 2 grant 2026-03-11T00:00:00"]);
    let unnoted = "UPDATE adjustments SET state = 'approved', booked_at = NULL, booked_amount = NULL, period_start = NULL, booked_in = NULL";
    as_owner(&app.database, unnoted).await.unwrap();
    follow(&app).await;
    app.app().operations.grants.follow().await.unwrap();
    assert_eq!(rows(&app.database, LAPSES).await, once);
    uses_all(&app, 5).await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_taken_back_and_what_it_left_are_proven_by_each_other() {
    let app = app().await;
    granted(&app).await;
    used(&app, "a", 15).await;
    on(&app, MARCH_12, "1").await;
    corrected(&app, "less", "-7", MARCH_10).await;
    assert_eq!(faults(&app).await, [""; 0]);
    for (damage, mend) in [
        ("UPDATE unwindings SET consumed = consumed - 1", "UPDATE unwindings SET consumed = consumed + 1"),
        ("UPDATE unwindings SET is_settled = false", "UPDATE unwindings SET is_settled = true"),
        (
            "UPDATE unwindings SET sequence = sequence - 1000",
            "UPDATE unwindings SET sequence = sequence + 1000",
        ),
        ("UPDATE grants SET settled_amount = 1", "UPDATE grants SET settled_amount = 2"),
    ] {
        as_owner(&app.database, damage).await.unwrap();
        let named = faults(&app).await;
        assert!(named.concat().contains("every grant's burn adds up"), "{damage}: {named:?}");
        as_owner(&app.database, mend).await.unwrap();
    }
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_allowance_that_could_be_lowered_only_in_part_takes_no_more_than_it_says_either() {
    let app = an_app().at(MARCH_10).without_jobs().with("adjustments.approval_above_units", 5).start().await;
    app.with_plan(json!([]), json!([quota_of("50")])).await;
    given(&app, "large", "2026-12-01T00:00:00Z", json!({ "amount": "40", "kind": "promotional" })).await;
    used(&app, "a", 30).await;
    let lower = json!({
        "tenant": "acme", "meter": "page", "effect": "allowance", "amount": "-10", "happened_at": MARCH_10,
        "reason": "granted too much"
    });
    let lower = app.post_keyed("/v1/adjustments", "lower", lower).await.expect(201).body;
    used(&app, "b", 2).await;
    let path = format!("/v1/adjustments/{}", lower["id"].as_str().unwrap());
    let other = app.make_key("finance", None).await;
    let lower = other.post(&format!("{path}/approve"), json!({})).await.expect(200).body;
    let lower = carried_out(&app, lower).await;
    assert_eq!(lower["booked_amount"], "-8", "no more was left");
    app.move_clock(MARCH_12).await;
    app.app().operations.grants.follow().await.unwrap();
    let booked = async || app.get(&path).await.expect(200).text("/booked_amount").to_owned();
    for (key, less, total, left) in [("one", "-1", "-9", "50"), ("more", "-4", "-10", "53")] {
        corrected(&app, key, less, MARCH_10).await;
        app.app().operations.grants.follow().await.unwrap();
        follow(&app).await;
        assert_eq!(booked().await, total, "{key}");
        assert_eq!(app.quota().await.text("/quotas/0/remaining"), left, "{key}");
    }
    assert_eq!(faults(&app).await, [""; 0]);
    uses_all(&app, 53).await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_lacks_a_grant_that_another_run_is_voiding_does_not_book_an_adjustment() {
    let app = an_app().at(MARCH_10).without_jobs().without_writer().start().await;
    app.with_plan(json!([]), json!([quota_of("50")])).await;
    let until = "2026-12-01T00:00:00Z";
    for (key, amount) in [("first", "4"), ("second", "6")] {
        given(&app, key, until, json!({ "amount": amount, "kind": "promotional" })).await;
    }
    // What is unburnt of a grant is booked by the writer, so that the adjustment stands at its first grant.
    let lower = json!({
        "tenant": "acme", "meter": "page", "effect": "allowance", "amount": "-8", "happened_at": MARCH_10,
        "reason": "granted too much"
    });
    let lower = app.post_keyed("/v1/adjustments", "lower", lower).await.expect(201).body;
    assert_eq!(lower["status"], "approved", "{lower}");
    let ledger = &app.app().ledger;
    let approved = ledger.adjustments_to_carry_out(None, 10).await.unwrap().remove(0);
    let [first] = approved.grants[..] else { panic!("one is noted: {approved:?}") };
    let other = "SELECT id AS a FROM grants WHERE voided_at IS NULL";
    let other = GrantId::from_uuid(rows(&app.database, other).await[0].parse().unwrap());
    assert_ne!(other, first.id);
    let second = AdjustmentGrant { place: 1, id: other, is_voided: true };
    assert_eq!(ledger.note_adjustment_grant(&approved, second).await.unwrap(), [first, second]);
    let seen = |notes| Lowered { changed: SignedAmount::default(), voided: Decimal::ZERO, notes };
    for (notes, is_noted) in [(1, false), (2, true), (2, false)] {
        assert_eq!(ledger.note_lowered(approved.id, seen(notes), 0).await.unwrap(), is_noted, "{notes}");
    }
    app.leave_unbalanced("nothing books");
}

#[rstest]
#[case::while_it_would_go_on("2026-12-01T00:00:00Z", 65)]
#[case::after_it_would_have_ended("2026-03-11T00:00:00Z", 50)]
#[tokio::test(flavor = "multi_thread")]
async fn an_allowance_that_was_lowered_takes_no_more_than_it_says_once_use_from_before_is_taken_back(
    #[case] until: &str,
    #[case] left: u64,
) {
    let app = app().await;
    given(&app, "large", until, json!({ "amount": "40", "kind": "promotional" })).await;
    used(&app, "a", 20).await;
    let lower = json!({
        "tenant": "acme", "meter": "page", "effect": "allowance", "amount": "-10", "happened_at": MARCH_10,
        "reason": "granted too much"
    });
    let lower = app.post_keyed("/v1/adjustments", "lower", lower).await.expect(201).body;
    let lower = carried_out(&app, lower).await;
    assert_eq!((&lower["status"], &lower["booked_amount"]), (&json!("booked"), &json!("-10")));
    app.move_clock(MARCH_12).await;
    app.app().operations.grants.follow().await.unwrap();
    assert_eq!(app.quota().await.text("/quotas/0/remaining"), if left == 65 { "60" } else { "50" });
    corrected(&app, "less", "-5", MARCH_10).await;
    app.app().operations.grants.follow().await.unwrap();
    follow(&app).await;
    let path = format!("/v1/adjustments/{}", lower["id"].as_str().unwrap());
    assert_eq!(app.get(&path).await.expect(200).text("/booked_amount"), "-10");
    assert_eq!(faults(&app).await, [""; 0]);
    uses_all(&app, left).await;
    app.finish().await;
}
