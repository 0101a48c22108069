//! `/v1/reports/rollover`: what became of closed periods.

use std::time::Duration;

use rstest::rstest;
use serde_json::{Value, json};
use tollgate::ledger::Manner;

use crate::support::app::*;

const ROLLOVER: &str = "/v1/reports/rollover";

/// A service after two months of `acme`, which has fifty pages a month, of which fifteen may roll over: 30 and then 50
/// of them were used, and 7 tokens without a quota in the first. The third month is open.
async fn after_two_months() -> TestApp {
    let app = an_app().at("2026-03-10T12:00:00Z").without_jobs().start().await;
    app.with_plan(json!([]), json!([quota_of("50").with("max_rollover", "15")])).await;
    app.use_pages("march", "30").await.expect(201);
    let tokens = json!({ "tenant": "acme", "meter": "token", "amount": "7" });
    app.post_keyed(USAGE, "tokens", tokens).await.expect(201);
    app.move_clock("2026-04-10T00:00:00Z").await;
    app.use_pages("april", "50").await.expect(201);
    app.move_clock("2026-05-10T00:00:00Z").await;
    app.use_pages("may", "1").await.expect(201);
    app.drained().await;
    let grace = Duration::from_secs(3600);
    app.app().operations.periods.close(Manner::default(), grace).await.unwrap();
    app.drained().await;
    app
}

/// Of each row its meter and month, and what was granted, beyond it, consumed and lapsed.
fn figures(body: &Value) -> Vec<String> {
    let line = |row: &Value| {
        let text = |field: &str| row[field].as_str().unwrap();
        let fields = ["meter", "granted", "overage", "consumed", "lapsed"].map(text).join(" ");
        format!("{} {fields}", &text("period_start")[..7])
    };
    body["data"].as_array().unwrap().iter().map(line).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn closed_periods_say_what_was_used_and_what_lapsed_the_last_to_end_first() {
    let app = after_two_months().await;
    let all = app.get(ROLLOVER).await.expect(200).body;
    let expected = ["2026-04 page 50 0 50 15", "2026-03 token 0 7 7 0", "2026-03 page 50 0 30 5"];
    assert_eq!(figures(&all), expected, "{all}");
    let (april, march) = (&all["data"][0], &all["data"][2]);
    assert_eq!((&march["rolled_out"], &april["rolled_in"]), (&json!("15"), &json!("15")));
    assert_eq!(march["period_end"], "2026-04-01T00:00:00Z");
    assert_eq!(march["closed_at"], "2026-04-01T01:00:00Z");
    for row in all["data"].as_array().unwrap() {
        let sum = |fields: &[&str]| -> i64 {
            fields.iter().map(|field| row[field].as_str().unwrap().parse::<i64>().unwrap()).sum()
        };
        let sources = sum(&["granted", "rolled_in", "carried_in", "overage", "adjusted"]);
        let places = sum(&["consumed", "lapsed", "voided", "rolled_out", "carried_out", "repaid"]);
        assert_eq!(sources, places, "{row}");
    }
    for (filter, expected) in [
        ("meter=token", &expected[1..2]),
        ("from=2026-05-01T00:00:00Z", &expected[..1]),
        ("to=2026-05-01T00:00:00Z", &expected[1..]),
        ("tenant=acme&to=2026-04-01T00:00:00Z", &[]),
    ] {
        assert_eq!(
            figures(&app.get(&format!("{ROLLOVER}?{filter}")).await.expect(200).body),
            expected,
            "{filter}"
        );
    }
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn closed_periods_come_in_pages_and_as_a_file_and_a_bound_key_sees_its_own() {
    let app = after_two_months().await;
    let whole = app.get(ROLLOVER).await.expect(200).body;
    let (mut rows, mut cursor) = (Vec::new(), String::new());
    for left in (0..3).rev() {
        let page = app.get(&format!("{ROLLOVER}?limit=1{cursor}")).await.expect(200).body;
        assert_eq!(page["has_more"], left > 0);
        rows.extend(page["data"].as_array().unwrap().iter().cloned());
        cursor = format!("&cursor={}", page["next_cursor"].as_str().unwrap_or_default());
    }
    assert_eq!(Value::Array(rows), whole["data"]);
    let file = app.get(&format!("{ROLLOVER}?format=csv")).await.expect(200);
    let lines: Vec<_> = file.body.as_str().unwrap().lines().collect();
    let titles = "tenant,meter,period_start,period_end,closed_at,granted,rolled_in,carried_in,overage,adjusted,consumed,lapsed,voided,rolled_out,carried_out,repaid,as_of";
    assert_eq!(lines[0], titles);
    let march =
        "acme,page,2026-03-01T00:00:00Z,2026-04-01T00:00:00Z,2026-04-01T01:00:00Z,50,0,0,0,0,30,5,0,15,0,0,";
    assert!(lines[3].starts_with(march), "{}", lines[3]);
    app.define("tenants/other", json!({ "id": "other", "plan": "plan" })).await.expect(201);
    let bound = app.make_key("finance", Some("other")).await;
    assert_eq!(figures(&bound.get(ROLLOVER).await.expect(200).body), [""; 0]);
    bound.get(&format!("{ROLLOVER}?tenant=acme")).await.is_problem(403, "forbidden");
    app.finish().await;
}

#[rstest]
#[case("meter=a/b", "/meter")]
#[case("to=now", "/to")]
#[case("format=pdf", "/format")]
#[case("granularity=day", "/granularity")]
#[tokio::test]
async fn a_wrong_parameter_of_closed_periods_is_named(#[case] query: &str, #[case] named: &str) {
    let app = spawn_app().await;
    let answer = app.get(&format!("{ROLLOVER}?{query}")).await;
    answer.is_problem(400, "invalid_request");
    assert_eq!(answer.pointers(), [named]);
    app.finish().await;
}
