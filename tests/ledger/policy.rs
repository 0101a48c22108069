use std::time::Duration;

use serde_json::json;
use tollgate::domain::ids::OperationId;
use tollgate::ledger::{
    Conflict, Expected, Generation, KeyPlace, Ledger, LedgerError, Noticed, ObjectKind, PolicyAction,
    PolicyChange, PolicyWrite, StoredKey, TenantPlace,
};

use super::events::{HOUR_MS, Work, tenant};
use super::ledger;
use crate::writer::apply::book;

fn put(kind: ObjectKind, id: &str, expected: Expected, definition: serde_json::Value) -> PolicyChange {
    let action = PolicyAction::Put { definition, archived: false, counter_resets: None };
    PolicyChange { kind, id: id.into(), expected, action }
}

fn delete(kind: ObjectKind, id: &str) -> PolicyChange {
    PolicyChange { kind, id: id.into(), expected: Expected::Any, action: PolicyAction::Delete }
}

fn write(changes: Vec<PolicyChange>) -> PolicyWrite {
    PolicyWrite { changes, generations: Vec::new(), based_on: None, actor: "anna".into() }
}

#[tokio::test(flavor = "multi_thread")]
async fn policy_is_written_together_versioned_and_told_to_listeners() {
    let (database, ledger) = ledger().await;
    let mut notices = Ledger::listen(&database.url);
    assert_eq!(notices.next().await, Some(Noticed::Connected));
    let changes = vec![
        put(ObjectKind::Meter, "ocr.page", Expected::Absent, json!({ "decimals": 2 })),
        put(ObjectKind::Tenant, "acme", Expected::Any, json!({ "plan": "free" })),
    ];
    let generation = Generation { limit_id: "day".into(), shape: "abc".into(), generation: 1, since_ms: 5 };
    let first = PolicyWrite { generations: vec![generation.clone()], ..write(changes) };
    let written = ledger.put_objects(first).await.unwrap();
    assert_eq!((written.version, written.objects[0].version, written.objects[0].created), (1, 1, true));
    let mut told = Vec::new();
    for _ in 0..2 {
        match tokio::time::timeout(Duration::from_secs(10), notices.next()).await.unwrap() {
            Some(Noticed::Changed(notice)) => told.push((notice.kind, notice.id, notice.version)),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(told, [("meter".into(), "ocr.page".into(), 1), ("tenant".into(), "acme".into(), 1)]);
    let stored = ledger.read_policy().await.unwrap();
    assert_eq!((stored.version, stored.objects.len(), stored.generations), (1, 1, vec![generation]));
    let acme = ledger.read_tenant_definition(&tenant("acme")).await.unwrap().unwrap();
    assert_eq!((acme.definition, acme.counter_resets), (json!({ "plan": "free" }), json!([])));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_expects_another_version_changes_nothing() {
    let (_database, ledger) = ledger().await;
    let meter = |expected| put(ObjectKind::Meter, "m", expected, json!({}));
    ledger.put_objects(write(vec![meter(Expected::Absent)])).await.unwrap();
    for wrong in [
        write(vec![put(ObjectKind::Plan, "p", Expected::Any, json!({})), meter(Expected::Absent)]),
        write(vec![meter(Expected::Version(2))]),
        write(vec![delete(ObjectKind::Plan, "none")]),
        PolicyWrite { based_on: Some(7), ..write(vec![meter(Expected::Any)]) },
    ] {
        let error = ledger.put_objects(wrong).await.unwrap_err();
        assert!(matches!(error, LedgerError::Conflict(_)), "{error}");
    }
    assert_eq!(ledger.policy_version().await.unwrap(), 1);
    assert_eq!(ledger.read_policy().await.unwrap().objects.len(), 1);
    let again = ledger.put_objects(write(vec![meter(Expected::Version(1))])).await.unwrap();
    assert_eq!((again.version, again.objects[0].version, again.objects[0].created), (2, 2, false));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operation_is_found_as_it_stood_at_a_version_of_the_policy() {
    let (_database, ledger) = ledger().await;
    let name = OperationId::parse("ocr.submit").unwrap();
    for base in ["1", "2"] {
        ledger
            .put_objects(write(vec![put(ObjectKind::Operation, "ocr.submit", Expected::Any, json!(base))]))
            .await
            .unwrap();
    }
    ledger.put_objects(write(vec![delete(ObjectKind::Operation, "ocr.submit")])).await.unwrap();
    let at = async |version| ledger.operation_at_version(&name, version).await.unwrap();
    assert_eq!(
        (at(0).await, at(1).await, at(2).await, at(3).await),
        (None, Some(json!("1")), Some(json!("2")), None)
    );
    let again = write(vec![put(ObjectKind::Operation, "ocr.submit", Expected::Absent, json!("3"))]);
    assert_eq!(
        ledger.put_objects(again).await.unwrap().objects[0].version,
        4,
        "versions go on over a deletion"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_booked_cannot_be_deleted() {
    let (_database, ledger) = ledger().await;
    let changes = vec![
        put(ObjectKind::Meter, "ocr.page", Expected::Any, json!({})),
        put(ObjectKind::Tenant, "acme", Expected::Any, json!({})),
        put(ObjectKind::Tenant, "idle", Expected::Any, json!({})),
    ];
    ledger.put_objects(write(changes)).await.unwrap();
    let acme = tenant("acme");
    book(&ledger, &acme, "1-0", vec![Work::new(&acme, "job", &[("ocr.page", 5)]).reserve()]).await.unwrap();
    for (kind, id) in [(ObjectKind::Meter, "ocr.page"), (ObjectKind::Tenant, "acme")] {
        let error = ledger.put_objects(write(vec![delete(kind, id)])).await.unwrap_err();
        assert!(matches!(error, LedgerError::Conflict(Conflict::InUse { .. })), "{error}");
    }
    ledger.put_objects(write(vec![delete(ObjectKind::Tenant, "idle")])).await.unwrap();
    assert_eq!(ledger.read_tenant_definition(&tenant("idle")).await.unwrap(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn tenants_and_keys_are_listed_newest_first_page_by_page() {
    let (_database, ledger) = ledger().await;
    for n in 0..5 {
        let id = format!("t{n}");
        ledger
            .put_objects(write(vec![put(ObjectKind::Tenant, &id, Expected::Any, json!({}))]))
            .await
            .unwrap();
        let key = StoredKey {
            id: format!("k{n}"),
            name: "key".into(),
            role: "service".into(),
            tenant: (n == 1).then(|| tenant("t1")),
            hash: [n; 32],
            created_at_ms: HOUR_MS + i64::from(n),
            expires_at_ms: None,
            revoked_at_ms: None,
        };
        ledger.insert_key(key.clone(), "anna").await.unwrap();
        let twice = ledger.insert_key(key, "anna").await.unwrap_err();
        assert!(matches!(twice, LedgerError::Conflict(Conflict::Exists { .. })), "{twice}");
    }
    let (mut tenants, mut keys) = (Vec::new(), Vec::new());
    let (mut tenant_place, mut key_place) = (None::<TenantPlace>, None::<KeyPlace>);
    for _ in 0..3 {
        let page = ledger.list_tenants(tenant_place.as_ref(), 2).await.unwrap();
        tenant_place = page.last().map(|t| TenantPlace { created_at_us: t.created_at_us, id: t.id.clone() });
        tenants.extend(page.into_iter().map(|t| t.id.to_string()));
        let page = ledger.list_keys(key_place.as_ref(), 2).await.unwrap();
        key_place = page.last().map(|k| KeyPlace { created_at_ms: k.created_at_ms, id: k.id.clone() });
        keys.extend(page.into_iter().map(|k| k.id));
    }
    assert_eq!(tenants, ["t4", "t3", "t2", "t1", "t0"]);
    assert_eq!(keys, ["k4", "k3", "k2", "k1", "k0"]);
    let revoked = ledger.revoke_key("k1", HOUR_MS + 50, "anna").await.unwrap();
    assert_eq!((revoked.revoked_at_ms, revoked.tenant.as_ref()), (Some(HOUR_MS + 50), Some(&tenant("t1"))));
    assert_eq!(
        ledger.revoke_key("k1", HOUR_MS + 99, "anna").await.unwrap().revoked_at_ms,
        Some(HOUR_MS + 50)
    );
    assert!(ledger.revoke_key("none", HOUR_MS, "anna").await.is_err());
    assert_eq!(ledger.find_key("k1").await.unwrap(), Some(revoked));
    assert_eq!(ledger.find_key("none").await.unwrap(), None);
}
