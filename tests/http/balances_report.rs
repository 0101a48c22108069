//! `/v1/reports/balances`: what stood in the accounts at an instant.

use std::time::Duration;

use rstest::rstest;
use rust_decimal::Decimal;
use serde_json::{Value, json};
use tollgate::domain::movements::Account;
use tollgate::ledger::Manner;

use crate::http::statements::price;
use crate::ledger::rows;
use crate::support::app::*;

const BALANCES: &str = "/v1/reports/balances";
const GRANTS: &str = "/v1/admin/grants";

/// What the books hold now: the rolled up balances, and what the entries of money come to.
const NOW: &str = "SELECT tenant, meter, concat_ws(' ', period_start AT TIME ZONE 'UTC', trim_scale(granted), trim_scale(rolled_in), \
        trim_scale(carried_in), trim_scale(overage), trim_scale(adjusted), trim_scale(available), trim_scale(reserved), \
        trim_scale(consumed), trim_scale(lapsed), trim_scale(voided), trim_scale(rolled_out), trim_scale(carried_out), \
        trim_scale(repaid)) AS accounts \
    FROM balances WHERE granted + rolled_in + carried_in + overage + abs(adjusted) + abs(available) + reserved + consumed > 0 \
    UNION ALL \
    SELECT tenant, meter, concat_ws(' ', trim_scale(-sum(amount) FILTER (WHERE account = 'receivable')), \
        trim_scale(coalesce(sum(amount) FILTER (WHERE account = 'revenue'), 0)), \
        trim_scale(coalesce(sum(amount) FILTER (WHERE account = 'deferred'), 0)), \
        trim_scale(coalesce(sum(amount) FILTER (WHERE account = 'breakage'), 0)), \
        trim_scale(coalesce(sum(amount) FILTER (WHERE account = 'tax'), 0))) \
    FROM (SELECT tenant, meter, credit AS account, amount FROM entries \
        UNION ALL SELECT tenant, meter, debit, -amount FROM entries) e \
    WHERE meter LIKE 'money:%' GROUP BY tenant, meter \
    ORDER BY 1, 2, 3";

/// A service on which `acme` and `other` have fifty pages a month at 0.10 EUR each beyond what is included.
async fn with_prices() -> TestApp {
    let app = an_app().at("2026-03-10T12:00:00Z").without_jobs().start().await;
    app.with_plan(json!([]), json!([quota_of("50").with("max_rollover", "15").with("mode", "soft")])).await;
    let pages = price(json!({ "model": "per_unit", "unit": "0.10" }));
    let plan = json!({ "quotas": [quota_of("50").with("max_rollover", "15").with("mode", "soft")], "prices": [pages] });
    app.define("plans/plan", plan).await;
    app.define("tenants/other", json!({ "plan": "plan" })).await.expect(201);
    app
}

/// A row as the books write it.
fn line(row: &Value) -> String {
    let texts = |names: &[Account]| -> Vec<String> {
        let amount = |account: &Account| row[account.as_str()].as_str().unwrap().parse::<Decimal>().unwrap();
        names.iter().map(|account| amount(account).normalize().to_string()).collect()
    };
    let accounts = match row["period_start"].as_str() {
        Some(start) => {
            let start = start.replace('T', " ").replace('Z', "");
            [vec![start], texts(&Account::OF_UNITS)].concat()
        }
        None => texts(&Account::OF_MONEY),
    };
    format!("{} {} {}", row["tenant"].as_str().unwrap(), row["meter"].as_str().unwrap(), accounts.join(" "))
}

fn lines(body: &Value) -> Vec<String> {
    body["data"].as_array().unwrap().iter().map(line).collect()
}

/// An instant, and what the books held then.
struct Mark {
    as_of: String,
    held: Vec<String>,
}

/// Notes what the books hold now, after all that was asked for is booked; the report says the same.
async fn mark(app: &TestApp) -> Mark {
    app.drained().await;
    let held = rows(&app.database, NOW).await;
    let live = app.get(&format!("{BALANCES}?limit=1000")).await.expect(200).body;
    assert_eq!(lines(&live), held);
    Mark { as_of: live["as_of"].as_str().unwrap().to_owned(), held }
}

/// Closes what is due, and bills it.
async fn bill(app: &TestApp) {
    let grace = Duration::from_secs(3600);
    app.drained().await;
    while app.app().operations.periods.close(Manner::default(), grace).await.unwrap().closed > 0 {}
    app.app().operations.statements.issue(Manner::default(), grace).await.unwrap();
}

/// A few calls that move units, chosen by a sequence of numbers that look random.
async fn some_work(app: &TestApp, chance: &mut impl FnMut(u64) -> u64) {
    for _ in 0..6 {
        let (tenant, amount) = (["acme", "other"][usize::try_from(chance(2)).unwrap()], 1 + chance(20));
        let key = format!("key-{}", chance(1 << 31));
        match chance(4) {
            0 => {
                let meter = ["page", "token"][usize::try_from(chance(2)).unwrap()];
                let work = json!({ "tenant": tenant, "meter": meter, "amount": amount.to_string() });
                app.post_keyed(USAGE, &key, work).await.expect(201);
            }
            1 => {
                let grant = json!({ "tenant": tenant, "meter": "page", "amount": amount.to_string(), "kind": "promotional" });
                let made = app.post_keyed(GRANTS, &key, grant).await.expect(201).body;
                if chance(2) == 0 {
                    let id = made["id"].as_str().unwrap();
                    app.post(&format!("{GRANTS}/{id}/void"), json!({})).await.expect(200);
                }
            }
            end => {
                let hold = app.held(pages(amount).of(tenant).lasting(86_400)).await;
                if end == 2 {
                    app.consume(&hold, &(amount / 2).to_string()).await.expect(200);
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn balances_as_of_every_mark_of_a_history_are_those_that_were_read_then() {
    let app = with_prices().await;
    let mut state = 20_260_310_u64;
    let mut chance = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let mut marks = vec![mark(&app).await];
    for round in 0..6 {
        some_work(&app, &mut chance).await;
        marks.push(mark(&app).await);
        if round % 2 == 1 {
            app.move_clock(
                ["2026-04-10T00:00:00Z", "2026-05-10T00:00:00Z", "2026-06-10T00:00:00Z"][round / 2],
            )
            .await;
            bill(&app).await;
            marks.push(mark(&app).await);
        }
    }
    assert!(
        marks.windows(2).all(|pair| pair[0].held != pair[1].held),
        "something was booked between all marks"
    );
    assert!(marks.iter().any(|mark| mark.held.iter().any(|line| line.starts_with("acme money:EUR "))));
    for Mark { as_of, held } in &marks {
        let (mut found, mut cursor) = (Vec::new(), String::new());
        loop {
            let page = app.get(&format!("{BALANCES}?at={as_of}&limit=3{cursor}")).await.expect(200).body;
            assert_eq!(page["as_of"], *as_of);
            found.extend(lines(&page));
            let Some(next) = page["next_cursor"].as_str() else { break };
            cursor = format!("&cursor={next}");
        }
        assert_eq!(found, *held, "as of {as_of}");
    }
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn balances_are_chosen_by_tenant_and_meter_and_are_a_file_too() {
    let app = with_prices().await;
    app.use_pages("a", "60").await.expect(201);
    app.post_keyed(USAGE, "b", pages("7").of("other")).await.expect(201);
    app.post_keyed(USAGE, "c", json!({ "tenant": "acme", "meter": "token", "amount": "4" }))
        .await
        .expect(201);
    app.move_clock("2026-04-10T00:00:00Z").await;
    bill(&app).await;
    app.drained().await;
    let chosen = async |caller: &Caller, query: &str| -> Vec<String> {
        let body = caller.get(&format!("{BALANCES}?{query}")).await.expect(200).body;
        let name =
            |row: &Value| format!("{} {}", row["tenant"].as_str().unwrap(), row["meter"].as_str().unwrap());
        let mut names: Vec<_> = body["data"].as_array().unwrap().iter().map(name).collect();
        names.dedup();
        names
    };
    assert_eq!(chosen(&app, "tenant=acme").await, ["acme money:EUR", "acme page", "acme token"]);
    assert_eq!(chosen(&app, "meter=page").await, ["acme page", "other page"]);
    assert_eq!(chosen(&app, "meter=money:EUR").await, ["acme money:EUR", "other money:EUR"]);
    assert_eq!(chosen(&app, "at=2020-01-01T00:00:00Z").await, [""; 0]);
    let file = app.get(&format!("{BALANCES}?tenant=acme&format=csv")).await.expect(200);
    let table: Vec<_> = file.body.as_str().unwrap().lines().collect();
    let titles = "tenant,meter,period_start,period_end,granted,rolled_in,carried_in,overage,adjusted,available,reserved,consumed,lapsed,voided,rolled_out,carried_out,repaid,receivable,revenue,deferred,breakage,tax,as_of";
    assert_eq!(table[0], titles);
    let [money, pages] = [1, 2].map(|at: usize| table[at].rsplit_once(',').unwrap().0);
    assert_eq!(money, "acme,money:EUR,,,,,,,,,,,,,,,,6.00,6.00,0.00,0.00,0.00");
    assert_eq!(
        pages,
        "acme,page,2026-03-01T00:00:00Z,2026-04-01T00:00:00Z,50,0,0,10,0,0,0,60,0,0,0,0,0,,,,,"
    );
    let bound = app.make_key("finance", Some("other")).await;
    assert_eq!(chosen(&bound, "").await, ["other money:EUR", "other page"]);
    bound.get(&format!("{BALANCES}?tenant=acme")).await.is_problem(403, "forbidden");
    app.finish().await;
}

#[rstest]
#[case("meter=a/b", Some("/meter"))]
#[case("at=now", Some("/at"))]
#[case("at=9999-01-01T00:00:00Z", None)]
#[case("from=2026-01-01T00:00:00Z", Some("/from"))]
#[tokio::test]
async fn a_wrong_parameter_of_balances_is_named(#[case] query: &str, #[case] named: Option<&str>) {
    let app = spawn_app().await;
    let answer = app.get(&format!("{BALANCES}?{query}")).await;
    answer.is_problem(400, "invalid_request");
    match named {
        Some(named) => assert_eq!(answer.pointers(), [named]),
        None => assert!(answer.body["detail"].as_str().unwrap().contains("`at`"), "{answer:?}"),
    }
    app.finish().await;
}
