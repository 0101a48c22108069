use std::time::{Duration, Instant};

use serde_json::json;
use tollgate::domain::ids::Partition;

use crate::ledger::rows;
use crate::support::app::*;
use crate::support::wait::wait_for;

/// Enough for most of the 64 partitions to have one.
const TENANTS: usize = 60;

#[tokio::test(flavor = "multi_thread")]
async fn after_a_months_leap_everything_due_expires_soon() {
    let start: jiff::Timestamp = "2026-03-10T12:00:00Z".parse().unwrap();
    let app = an_app().at_ms(start.as_millisecond()).with("gate.partitions", 64).start().await;
    app.without_limits().await;
    for number in 0..TENANTS {
        app.define(&format!("tenants/t{number}"), json!({ "plan": "plan" })).await;
        let hold = pages("3").of(format!("t{number}")).lasting(600);
        app.post(RESERVATIONS, hold).await.expect(201);
    }
    app.move_clock("2026-04-10T12:00:00Z").await;
    let began = Instant::now();
    let gate = &app.app().gate;
    wait_for("every partition is swept, and nothing is left behind", Duration::from_secs(30), async || {
        let due_s = app.clock.now_ms() / 1000;
        for partition in Partition::all(64) {
            (gate.meta_facts(partition).await.ok()?.swept? >= due_s).then_some(())?;
        }
        gate.due_lists().await.ok()?.is_empty().then_some(())
    })
    .await;
    let took = began.elapsed();
    assert!(took < Duration::from_secs(15), "it took {took:?}");
    app.drained().await;
    let open = "SELECT state, count(*) AS n FROM reservations GROUP BY 1";
    assert_eq!(rows(&app.database, open).await, [format!("expired {TENANTS}")]);
    app.finish().await;
}
