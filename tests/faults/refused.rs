//! Usage beyond what the books can hold: it waits alone.

use std::time::Duration;

use futures::future::join_all;
use serde_json::json;

use crate::support::app::*;
use crate::support::wait::wait_for;

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_whose_usage_is_more_than_the_books_hold_keeps_no_other_s_from_being_booked() {
    let app = an_app().without_jobs().start().await;
    app.without_limits().await;
    app.define("tenants/other", json!({ "plan": "plan" })).await;
    let most = || pages("9000000000000000");
    let keys: Vec<_> = (0..112).map(|n| format!("job-{n}")).collect();
    for answer in join_all(keys.iter().map(|key| app.post_keyed(USAGE, key, most()))).await {
        answer.expect(201);
    }
    for tenant in ["other", "acme"] {
        let body = pages(1).of(tenant).with("ack", "ledger");
        app.post_keyed(USAGE, "small", body).await.expect(201);
    }
    wait_for("what is beyond the bound is in quarantine", Duration::from_secs(30), async || {
        (app.app().ledger.count_quarantined().await.ok()? == 1).then_some(())
    })
    .await;
    app.leave_unbalanced("an event waits in quarantine");
}
