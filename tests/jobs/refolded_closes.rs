//! Verify folds closed periods again: a close that has booked another split of what was unused is named, also where
//! everything that it has booked agrees.

use tollgate::ledger::{VerifyOptions, verify};

use super::continued_grants::{granted, on, paid, until, used, with};
use crate::ledger::as_owner;
use crate::support::app::*;

const CLOSES: &str = "closes follow from what was burnt";

/// The faulty checks, and what is wrong with closes.
async fn faulty(app: &TestApp) -> (Vec<&'static str>, String) {
    let report = verify(&app.app().ledger, VerifyOptions { rebuild: true, ..VerifyOptions::default() }).await;
    let checks = report.unwrap().checks;
    assert!(checks.iter().any(|check| check.name == CLOSES && check.checked > 0), "{checks:?}");
    let faulty = checks.into_iter().filter(|check| !check.faults.is_empty()).collect::<Vec<_>>();
    let of_closes = faulty.iter().filter(|check| check.name == CLOSES).flat_map(|check| &check.faults);
    let detail = of_closes.map(|fault| format!("{} {}", fault.what, fault.detail)).collect();
    (faulty.iter().map(|check| check.name).collect(), detail)
}

async fn tamper(app: &TestApp, change: &str) {
    as_owner(&app.database, &format!("SET session_replication_role = replica; {change}")).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_lapsed_instead_of_rolling_over_is_named() {
    let app = with(quota_of("50").with("max_rollover", "30")).await;
    used(&app, "march", "30").await;
    on(&app, "2026-04-10T12:00:00Z").await;
    used(&app, "april", "1").await;
    assert_eq!(faulty(&app).await, (Vec::new(), String::new()));
    let as_if_ten_had_lapsed = "
        UPDATE period_closures SET rolled = 10, lapsed = 10;
        INSERT INTO entries SELECT (json_populate_record(e, '{\"leg\": 9, \"debit\": \"lapsed\"}')).* FROM entries e WHERE debit = 'rolled_out';
        UPDATE entries SET amount = 10 WHERE debit IN ('rolled_out', 'lapsed') OR credit = 'rolled_in';
        UPDATE balances SET rolled_out = 10, lapsed = 10 WHERE rolled_out = 20;
        UPDATE balances SET rolled_in = 10, available = available - 10 WHERE rolled_in = 20;
        UPDATE rolled_amounts SET amount = 10, rolled = 10";
    tamper(&app, as_if_ten_had_lapsed).await;
    let (checks, detail) = faulty(&app).await;
    assert_eq!(checks, [CLOSES, "hash chains are intact"]);
    let named =
        "close of acme page 2026-03-01T00:00:00Z 10 rolled over, by its cuts 20; 10 lapsed, by its cuts 0";
    assert!(detail.starts_with(named), "{detail}");
    app.leave_unbalanced("its close was changed");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_went_on_of_one_grant_instead_of_another_and_had_burnt_of_a_sold_one_is_named() {
    let app = with(quota_of("50")).await;
    let first = granted(&app, "a", until("2026-12-01T00:00:00Z", "10")).await;
    granted(&app, "b", until("2026-12-02T00:00:00Z", "10")).await;
    let sold = paid("10", "10", "2026-12-01T00:00:00Z").with("priority", 100);
    let sold = granted(&app, "c", sold).await;
    used(&app, "march", "72").await;
    on(&app, "2026-04-10T12:00:00Z").await;
    assert_eq!(faulty(&app).await, (Vec::new(), String::new()));
    let swap = |from: &str, to: &str| {
        format!("UPDATE continued_grants SET grant_id = '{to}' WHERE grant_id = '{from}'")
    };
    // Nothing is left of the first; eight of the sold one are.
    tamper(&app, &swap(&sold, &first)).await;
    let (checks, detail) = faulty(&app).await;
    assert!(checks.contains(&CLOSES), "{checks:?}");
    assert!(detail.contains(&format!("8 of grant {first} came over, by its cuts 0")), "{detail}");
    assert!(detail.contains(&format!("0 of grant {sold} came over, by its cuts 8")), "{detail}");
    tamper(&app, &swap(&first, &sold)).await;
    tamper(&app, "UPDATE grant_burns SET amount = amount + 1").await;
    let (_, detail) = faulty(&app).await;
    assert!(detail.contains(&format!("3 of grant {sold} have burnt, by its cuts 2")), "{detail}");
    tamper(&app, "UPDATE grant_burns SET amount = amount - 1").await;
    app.finish().await;
}
