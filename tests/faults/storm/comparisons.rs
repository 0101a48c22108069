//! Every tenant compared every second under full load: no false difference, and every real one is found.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::join_all;
use redis::AsyncCommands;
use redis::streams::StreamRangeReply;
use tollgate::app::Role;
use tollgate::domain::checkpoint::ReconciliationState::{Clean, Repaired};
use tollgate::domain::ids::TenantId;

use super::{PATIENCE, sized};
use crate::faults::reconciliation::{
    Traffic, acme, all, app_with, before_the_turn, compared_of, usage, with_tenants,
};
use crate::support::app::*;
use crate::support::wait::wait_for;

/// Adds to the consumed figure of a counter in one step, as calls go on.
const TAMPER: &str = "local value = redis.call('HGET', KEYS[1], ARGV[1]) \
    local consumed = struct.unpack('<i8', value, 9) + ARGV[2] \
    redis.call('HSET', KEYS[1], ARGV[1], string.sub(value, 1, 8) .. struct.pack('<i8', consumed) .. string.sub(value, 17))";

async fn tamper(app: &TestApp, tenant: &TenantId, by: i64) {
    let mut connection = app.redis.connection().await;
    let keys: Vec<String> = connection.keys(format!("tg1:*:state:{tenant}")).await.unwrap();
    let fields: Vec<Vec<u8>> = connection.hkeys(&keys[0]).await.unwrap();
    let field = fields.into_iter().find(|name| name.len() == 8).unwrap();
    let mut command = redis::cmd("EVAL");
    command.arg(TAMPER).arg(1).arg(&keys[0]).arg(field).arg(by);
    command.exec_async(&mut connection).await.unwrap();
}

/// Deletes the tenant's latest event from its outbox.
async fn delete_latest_event(app: &TestApp, tenant: &TenantId) {
    let mut connection = app.redis.connection().await;
    let outboxes: Vec<String> = connection.keys("tg1:*:outbox").await.unwrap();
    for outbox in outboxes {
        let latest: StreamRangeReply = connection.xrevrange_count(&outbox, "+", "-", 1_000).await.unwrap();
        let named = |value: &redis::Value| match value {
            redis::Value::BulkString(bytes) => {
                bytes.windows(tenant.as_str().len()).any(|window| window == tenant.as_str().as_bytes())
            }
            _ => false,
        };
        if let Some(event) = latest.ids.iter().find(|event| event.map.values().any(named)) {
            let deleted: u64 = connection.xdel(&outbox, &[&event.id]).await.unwrap();
            assert_eq!(deleted, 1);
            return;
        }
    }
    panic!("no event of {tenant}");
}

/// Takes a checkpoint of each tenant every second; returns how many were taken.
async fn compare_every_second(app: &TestApp, tenants: &[TenantId], seconds: usize) -> usize {
    let mut tick = tokio::time::interval(Duration::from_secs(1));
    let mut taken = 0;
    for _ in 0..seconds {
        tick.tick().await;
        let checkpoints = tenants.iter().map(|tenant| app.app().operations.reconcile.take_checkpoint(tenant));
        // A busy machine may answer late; the next second comes soon.
        taken += join_all(checkpoints).await.iter().filter(|taken| matches!(taken, Ok(Some(_)))).count();
        app.clock.advance_to(app.clock.now_ms() + 1_000).unwrap();
    }
    taken
}

async fn repaired(app: &TestApp, tenant: &TenantId) -> usize {
    all(app).await.iter().filter(|row| row.state == Repaired && row.tenant == *tenant).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn compared_every_second_under_full_load_no_tenant_differs_until_it_is_tampered_with_and_then_once() {
    let (count, seconds) = sized((50, 60), (10, 4));
    let app = app_with(before_the_turn().with("http.workers", "2").without_writer()).await;
    let mut writer = app.another_instance_with(&[Role::Writer]).await;
    with_tenants(&app, count).await;
    usage(&app, "a", 20).await;
    let tenants: Vec<_> =
        (0..count).map(|number| TenantId::parse(&format!("tenant-{number}")).unwrap()).collect();
    let app = Arc::new(app);
    let traffic = Traffic::flow(&app, 32, count);
    let began = Instant::now();
    let taken = compare_every_second(&app, &tenants, seconds).await;
    let took = began.elapsed();
    let most = tenants.len() * seconds;
    eprintln!("{taken} of {most} checkpoints taken in {took:?}, {} calls meanwhile", traffic.calls());
    assert!(taken >= most / 2, "{taken} of {most}");
    for tenant in &tenants {
        let found = compared_of(&app, tenant, true).await;
        assert_eq!(found.state, Clean, "{found:?}");
    }
    let rows = all(&app).await;
    assert!(rows.iter().all(|row| row.state == Clean), "{rows:#?}");

    for (tenant, by) in [(&tenants[0], 7), (&tenants[1], -9)] {
        tamper(&app, tenant, by).await;
        let drift = compared_of(&app, tenant, true).await;
        assert_eq!((drift.state, drift.differences.len()), (Repaired, 1), "{drift:?}");
        assert_eq!(drift.differences[0].delta(), (-by, 0), "{drift:?}");
        assert_eq!(compared_of(&app, tenant, true).await.state, Clean);
        assert_eq!(repaired(&app, tenant).await, 1);
    }
    writer.stop().await;
    usage(&app, "b", 5).await;
    delete_latest_event(&app, &acme()).await;
    usage(&app, "c", 3).await;
    let place = app.app().operations.reconcile.take_checkpoint(&acme()).await.unwrap().unwrap();
    writer = app.another_instance_with(&[Role::Writer]).await;
    let drift = wait_for("the drift is repaired", PATIENCE, async || {
        let judged = app.app().ledger.reconciliation(&acme(), place.id, place.place).await.unwrap()?;
        (judged.state == Repaired).then_some(judged)
    })
    .await;
    assert_eq!((drift.gaps, drift.differences.len()), (1, 3), "{drift:?}");
    assert!(drift.differences.iter().all(|difference| difference.delta() == (-5, 0)), "{drift:?}");
    assert_eq!(compared_of(&app, &acme(), true).await.state, Clean);
    assert_eq!(repaired(&app, &acme()).await, 1);
    for tenant in &tenants {
        let found = compared_of(&app, tenant, true).await;
        assert_eq!(found.state, Clean, "{found:?}");
    }
    traffic.end().await;
    app.drained().await;
    let repairs = all(&app).await.iter().filter(|row| row.state != Clean).count();
    assert_eq!(repairs, 3, "three faults, three repairs");
    writer.stop().await;
    Arc::into_inner(app).expect("all who called have ended").finish().await;
}
