use std::time::Duration;
use tollgate::domain::amount::{Amount, Units};
use tollgate::domain::ids::*;
use tollgate::domain::reservation::*;
use tollgate::gate::*;
use crate::support::services;

#[tokio::test(flavor = "multi_thread")]
async fn smoke() {
    let redis = services::redis();
    let gate = Gate::connect(GateOptions { url: redis.url(), connections: 1, response_timeout: Duration::from_secs(2), connect_timeout: Duration::from_secs(2), partitions: 4, due_bucket_ms: 1000, tombstone_keyed_ms: 86400000, tombstone_unkeyed_ms: 300000, allow_unsafe: false, secret: [7; 32] }).await.unwrap();
    let tenant = TenantId::parse("acme").unwrap();
    let p = gate.partition_of(&tenant);
    let now = Some(1_000_000);
    assert_eq!(gate.adopt(p, Epoch(1), now).await.unwrap(), Epoch(1));
    gate.set_epoch(p, Epoch(1));
    let run = gate.run_id().await.unwrap();
    gate.load_scripts(&run).await.unwrap();
    let ids = ReservationIds::new(&[7; 32]);
    let line = LineRule { meter: MeterId::parse("page").unwrap(), decimals: Default::default(), on_excess: OnExcess::Record, on_late: OnLate::Charge, late_within_seconds: 1000 };
    let place = CounterPlace { holder: 0, field: CounterField(*b"abcdefgh"), window_start_ms: 0, cap: None, pairs: vec![(0, 1)] };
    let body = Body { fingerprint: [1; 16], tenant: tenant.clone(), lines: vec![line], rest: Some(BodyRest { subjects: vec![], counters: vec![place.clone()], keyed: false, operation: None, policy_version: 1, period_ms: (0, 10_000_000), hour_start_ms: 0, metadata: String::new() }) };
    let check = CounterCheck { place, class: CounterClass::Quota, since_ms: 0, capacity: CheckCapacity::Limit(Units::new(10).unwrap()) };
    let id = ids.fresh(p, 1, 2);
    let call = |n: i64, id| ReserveCall { id, partition: p, tenant: &tenant, subjects: vec![], mode: ReserveMode::AllOrNothing, amounts: vec![Units::new(n).unwrap()], body: &body, checks: vec![check.clone()], ttl_ms: 5000, max_life_ms: 10000, valid: (0, 3_600_000), ledger_asked: true, now_ms: now };
    println!("{:?}", gate.reserve(&call(6, id)).await.unwrap());
    let warm = WarmState { ask_until_ms: 0, counters: vec![RestoredCounter { field: CounterField(*b"abcdefgh"), window_start_ms: 0, consumed: Units::ZERO, reserved: Units::ZERO, next_hold_ends_at_ms: None }], capacities: vec![] };
    println!("{:?}", gate.restore_page(&RestorePage { partition: p, tenant: &tenant, records: &[], last: Some(warm), now_ms: now }).await.unwrap());
    println!("{:?}", gate.reserve(&call(6, id)).await.unwrap());
    println!("{:?}", gate.reserve(&call(6, id)).await.unwrap());
    println!("{:?}", gate.reserve(&call(6, ids.fresh(p, 1, 3))).await.unwrap());
    let two = Totals::Single(Amount::from_integer(2));
    println!("{:?}", gate.consume(&ConsumeCall { id, bound: None, totals: two.clone(), is_final: false, now_ms: now }).await.unwrap());
    println!("{:?}", gate.extend(&ExtendCall { id, bound: None, ttl_ms: 7000, now_ms: now }).await.unwrap());
    println!("{:?}", gate.consume(&ConsumeCall { id, bound: None, totals: two.clone(), is_final: true, now_ms: now }).await.unwrap());
    println!("{:?}", gate.consume(&ConsumeCall { id, bound: None, totals: two, is_final: true, now_ms: now }).await.unwrap());
    println!("{:?}", gate.expire(p, 100, Some(1_020_000)).await.unwrap());
    let id = ids.fresh(p, 1, 4);
    println!("{:?}", gate.reserve(&call(3, id)).await.unwrap());
    println!("{:?}", gate.expire(p, 100, Some(1_040_000)).await.unwrap());
    println!("{:?}", gate.consume(&ConsumeCall { id, bound: None, totals: Totals::Default, is_final: true, now_ms: Some(1_040_000) }).await.unwrap());
    for (_, entries) in gate.read_outbox(&[(p, OutboxId::default())], 100).await.unwrap() {
        for (at, bytes) in entries { println!("{:?}", tollgate::domain::event::Event::decode(at, &bytes).unwrap().change); }
    }
}
