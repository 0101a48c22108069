//! The calls that the loads are made of.

use super::load::Caller;

/// The body of a reserve. Its hold outlives the run, so that no sweep of one figure's holds falls into another's.
fn reserve_body(tenant: &str) -> String {
    format!(r#"{{"tenant":"{tenant}","ttl_seconds":3600,"lines":[{{"meter":"page","amount":"3"}}]}}"#)
}

/// The id in a reserve's answer, found without reading the rest.
fn id_of(body: &str) -> String {
    let (_, rest) = body.split_once(r#""id":""#).expect("an id");
    rest.split('"').next().expect("an id").to_owned()
}

/// Reserves, and returns the reservation's id.
pub async fn reserve(caller: &mut Caller, tenant: &str) -> String {
    id_of(caller.must("POST", "/v1/reservations", &reserve_body(tenant), &[201]).await)
}

/// Consumes all there will be of a reservation.
pub async fn finish(caller: &mut Caller, id: &str, ack: &str) {
    let body = format!(r#"{{"amount":"2","ack":"{ack}"}}"#);
    caller.must("POST", &format!("/v1/reservations/{id}/consume"), &body, &[200]).await;
}

/// Counts usage after the fact.
pub async fn use_up(caller: &mut Caller, tenant: &str, ack: &str, key: &str) {
    let body = format!(
        r#"{{"tenant":"{tenant}","lines":[{{"meter":"page","amount":"3"}}],"ack":"{ack}","idempotency_key":"{key}"}}"#
    );
    caller.must("POST", "/v1/usage", &body, &[201]).await;
}

/// Counts under a limit of the gate's own, without a reservation.
pub async fn check(caller: &mut Caller, tenant: &str) {
    let body = format!(r#"{{"tenant":"{tenant}","operation":"asked"}}"#);
    let answer = caller.must("POST", "/v1/ratelimit/check", &body, &[200]).await;
    assert!(answer.contains(r#""allowed":true"#), "it is admitted: {answer}");
}

/// Reserves for many tenants in one call.
pub async fn reserve_batch(caller: &mut Caller, key: u64, tenants: impl Iterator<Item = String>) {
    let items: Vec<String> = tenants
        .enumerate()
        .map(|(number, tenant)| {
            let body = reserve_body(&tenant);
            format!(r#"{{"call":"reserve","idempotency_key":"batch-{key}-{number}","body":{body}}}"#)
        })
        .collect();
    let body = format!(r#"{{"items":[{}]}}"#, items.join(","));
    let answer = caller.must("POST", "/v1/batch", &body, &[200]).await;
    assert_eq!(answer.matches(r#""status":201"#).count(), items.len(), "every item is admitted");
}

/// Reads what a tenant has left.
pub async fn read_quota(caller: &mut Caller, tenant: &str) {
    caller.must("GET", &format!("/v1/tenants/{tenant}/quota"), "", &[200]).await;
}

/// Spreads turns over tenants so that neighbours differ.
pub fn tenant_of(turn: u64, tenants: usize) -> String {
    format!("tenant-{}", (turn.wrapping_mul(7_919)) % tenants as u64)
}
