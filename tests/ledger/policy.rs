use std::time::Duration;

use serde_json::json;
use tollgate::domain::ids::OperationId;
use tollgate::domain::policy::diff::DefinitionKind;
use tollgate::ledger::{
    Conflict, Expected, Generation, Ledger, LedgerError, Noticed, PolicyAction, PolicyChange, PolicyVersions,
    PolicyWrite, PolicyWritten, SharedChange, StoredKey, TenantCursor,
};

use super::events::{HOUR_MS, Work, tenant};
use super::{as_owner, ledger};
use crate::writer::apply::book;

fn put(kind: DefinitionKind, id: &str, expected: Expected, definition: serde_json::Value) -> PolicyChange {
    let action = PolicyAction::Put { definition, archived: false, counter_resets: None };
    PolicyChange { kind, id: id.into(), expected, action }
}

fn delete(kind: DefinitionKind, id: &str) -> PolicyChange {
    PolicyChange { kind, id: id.into(), expected: Expected::Any, action: PolicyAction::Delete }
}

fn write(changes: Vec<PolicyChange>) -> PolicyWrite {
    PolicyWrite {
        currencies: Vec::new(),
        plans: Vec::new(),
        changes,
        unused_meters: Vec::new(),
        generations: Vec::new(),
        calendars: Vec::new(),
        actor: "anna".into(),
        at_ms: 0,
    }
}

async fn change(
    ledger: &Ledger,
    base: PolicyVersions,
    write: PolicyWrite,
) -> Result<PolicyWritten, LedgerError> {
    let changed = ledger.change_policy(base, false, move |_| Ok::<_, ()>((write, ()))).await?;
    Ok(changed.unwrap().0)
}

/// Whatever was changed before.
async fn put_objects(ledger: &Ledger, write: PolicyWrite) -> Result<PolicyWritten, LedgerError> {
    change(ledger, ledger.policy_versions().await?, write).await
}

#[tokio::test(flavor = "multi_thread")]
async fn policy_is_written_together_versioned_and_notified_to_listeners() {
    let (database, ledger) = ledger().await;
    let mut notices = Ledger::listen(&database.url);
    assert_eq!(notices.next().await, Some(Noticed::Connected));
    let changes = vec![
        put(DefinitionKind::Meter, "ocr.page", Expected::Absent, json!({ "decimals": 2 })),
        put(DefinitionKind::Tenant, "acme", Expected::Any, json!({ "plan": "free" })),
    ];
    let generation = Generation { limit_id: "day".into(), shape: "abc".into(), generation: 1, since_ms: 5 };
    let first = PolicyWrite { generations: vec![generation.clone()], ..write(changes) };
    let written = put_objects(&ledger, first).await.unwrap();
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
    assert_eq!((stored.versions.version, stored.objects.len(), stored.generations), (1, 1, vec![generation]));
    let acme = ledger.read_tenant_definition(&tenant("acme")).await.unwrap().unwrap();
    assert_eq!((acme.definition, acme.counter_resets), (json!({ "plan": "free" }), json!([])));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_expects_another_version_changes_nothing() {
    let (_database, ledger) = ledger().await;
    let meter = |expected| put(DefinitionKind::Meter, "m", expected, json!({}));
    put_objects(&ledger, write(vec![meter(Expected::Absent)])).await.unwrap();
    for wrong in [
        write(vec![put(DefinitionKind::Plan, "p", Expected::Any, json!({})), meter(Expected::Absent)]),
        write(vec![meter(Expected::Version(2))]),
        write(vec![delete(DefinitionKind::Plan, "none")]),
    ] {
        let error = put_objects(&ledger, wrong).await.unwrap_err();
        assert!(matches!(error, LedgerError::Conflict(_)), "{error}");
    }
    let base = ledger.policy_versions().await.unwrap();
    let lost = PolicyVersions { version: 2, ..base };
    let anew = PolicyVersions { shared: SharedChange { at_us: 5, ..base.shared }, ..base };
    for other in [PolicyVersions::default(), lost, anew] {
        let error = change(&ledger, other, write(vec![meter(Expected::Any)])).await.unwrap_err();
        assert!(matches!(error, LedgerError::Conflict(Conflict::PolicyMoved { found: 1 })), "{error}");
    }
    let refused = ledger.change_policy(base, false, |_| Err::<(PolicyWrite, ()), _>("no")).await.unwrap();
    assert_eq!(refused.unwrap_err(), "no");
    assert_eq!(ledger.policy_version().await.unwrap(), 1);
    assert_eq!(ledger.read_policy().await.unwrap().objects.len(), 1);
    let again = put_objects(&ledger, write(vec![meter(Expected::Version(1))])).await.unwrap();
    assert_eq!((again.version, again.objects[0].version, again.objects[0].created), (2, 2, false));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_is_told_of_the_tenants_that_changed_since_it_was_prepared() {
    let (_database, ledger) = ledger().await;
    let tenant_of =
        |id: &str, plan: &str| put(DefinitionKind::Tenant, id, Expected::Any, json!({ "plan": plan }));
    for id in ["before", "changed", "gone"] {
        put_objects(&ledger, write(vec![tenant_of(id, "one")])).await.unwrap();
    }
    let base = ledger.policy_versions().await.unwrap();
    assert_eq!((base.version, base.shared.version), (3, 0), "no tenant moves what they share");
    put_objects(&ledger, write(vec![tenant_of("changed", "two"), tenant_of("new", "two")])).await.unwrap();
    put_objects(&ledger, write(vec![delete(DefinitionKind::Tenant, "gone")])).await.unwrap();
    let told = ledger
        .change_policy(base, true, |since| {
            let meter = put(DefinitionKind::Meter, "page", Expected::Absent, json!({}));
            Ok::<_, ()>((write(vec![meter]), since))
        })
        .await;
    let (written, mut since) = told.unwrap().unwrap();
    since.sort_by(|a, b| a.id.cmp(&b.id));
    let plans: Vec<_> = since
        .iter()
        .map(|each| (each.id.as_str(), each.stored.as_ref().map(|stored| stored.definition["plan"].clone())))
        .collect();
    assert_eq!(plans, [("changed", Some(json!("two"))), ("gone", None), ("new", Some(json!("two")))]);
    let versions = ledger.policy_versions().await.unwrap();
    assert_eq!((versions.version, versions.shared.version), (written.version, written.version));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operation_is_found_as_it_stood_at_a_version_of_the_policy() {
    let (_database, ledger) = ledger().await;
    let name = OperationId::parse("ocr.submit").unwrap();
    for base in ["1", "2"] {
        put_objects(
            &ledger,
            write(vec![put(DefinitionKind::Operation, "ocr.submit", Expected::Any, json!(base))]),
        )
        .await
        .unwrap();
    }
    put_objects(&ledger, write(vec![delete(DefinitionKind::Operation, "ocr.submit")])).await.unwrap();
    let at = async |version| ledger.operation_at_version(&name, version).await.unwrap();
    assert_eq!(
        (at(0).await, at(1).await, at(2).await, at(3).await),
        (None, Some(json!("1")), Some(json!("2")), None)
    );
    let again = write(vec![put(DefinitionKind::Operation, "ocr.submit", Expected::Absent, json!("3"))]);
    assert_eq!(
        put_objects(&ledger, again).await.unwrap().objects[0].version,
        4,
        "versions go on over a deletion"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_booked_cannot_be_deleted() {
    let (_database, ledger) = ledger().await;
    let changes = vec![
        put(DefinitionKind::Meter, "ocr.page", Expected::Any, json!({})),
        put(DefinitionKind::Tenant, "acme", Expected::Any, json!({})),
        put(DefinitionKind::Tenant, "idle", Expected::Any, json!({})),
    ];
    put_objects(&ledger, write(changes)).await.unwrap();
    let acme = tenant("acme");
    book(&ledger, &acme, "1-0", vec![Work::new(&acme, "job", &[("ocr.page", 5)]).reserve()]).await.unwrap();
    for (kind, id) in [(DefinitionKind::Meter, "ocr.page"), (DefinitionKind::Tenant, "acme")] {
        let error = put_objects(&ledger, write(vec![delete(kind, id)])).await.unwrap_err();
        assert!(matches!(error, LedgerError::Conflict(Conflict::InUse { .. })), "{error}");
    }
    put_objects(&ledger, write(vec![delete(DefinitionKind::Tenant, "idle")])).await.unwrap();
    assert_eq!(ledger.read_tenant_definition(&tenant("idle")).await.unwrap(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn tenants_and_keys_are_listed_newest_first_page_by_page() {
    let (_database, ledger) = ledger().await;
    for n in 0..5 {
        let id = format!("t{n}");
        put_objects(&ledger, write(vec![put(DefinitionKind::Tenant, &id, Expected::Any, json!({}))]))
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
    let mut tenant_place = None::<TenantCursor>;
    for _ in 0..3 {
        let page = ledger.list_tenants(tenant_place.as_ref(), 2).await.unwrap();
        tenant_place = page.last().map(|t| TenantCursor { created_at_us: t.created_at_us, id: t.id.clone() });
        tenants.extend(page.into_iter().map(|t| t.id.to_string()));
        let page = ledger.list_keys(keys.last().map(String::as_str), 2).await.unwrap();
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
    let (last, changed) = ledger.keys_changed_after(0, 100).await.unwrap().pop().unwrap();
    assert_eq!(changed, revoked, "what changed last comes last");
    assert_eq!(ledger.keys_changed_after(last, 100).await.unwrap(), []);
}

/// A change by hand is new too, and none is lost.
#[tokio::test(flavor = "multi_thread")]
async fn changes_of_keys_are_numbered_and_never_deletions() {
    let (database, ledger) = ledger().await;
    let many = "INSERT INTO api_keys (id, name, role, hash, created_at) \
                SELECT 'k' || n, 'key', 'service', decode(repeat('00', 32), 'hex'), now() FROM generate_series(1, 20000) n; \
                ANALYZE api_keys";
    as_owner(&database, many).await.unwrap();
    let newest = ledger.keys_changed_after(19_999, 1_000).await.unwrap();
    assert_eq!(
        newest.iter().map(|(change, key)| (*change, key.id.as_str())).collect::<Vec<_>>(),
        [(20_000, "k20000")]
    );
    as_owner(&database, "UPDATE api_keys SET revoked_at = now() WHERE id = 'k7'").await.unwrap();
    let changed = ledger.keys_changed_after(20_000, 1_000).await.unwrap();
    assert_eq!(changed.len(), 1);
    assert!(changed[0].1.id == "k7" && changed[0].1.revoked_at_ms.is_some(), "{changed:?}");
    for removal in ["DELETE FROM api_keys WHERE id = 'k7'", "TRUNCATE api_keys"] {
        let refused = as_owner(&database, removal).await.unwrap_err();
        assert!(refused.as_db_error().unwrap().message().contains("set revoked_at instead"), "{refused:?}");
    }
}

/// Before a meter changes, and before it is deleted, the books of all tenants are asked for it.
#[tokio::test(flavor = "multi_thread")]
async fn whether_a_meter_is_booked_is_asked_by_index_and_of_what_waits_too() {
    let (database, ledger) = ledger().await;
    let many = "INSERT INTO balances (tenant, meter, period_start, period_end) \
                SELECT 't' || n, 'm' || n % 2, now(), now() FROM generate_series(1, 20000) n; \
                ANALYZE balances";
    as_owner(&database, many).await.unwrap();
    let statement = include_str!("../../src/ledger/sql/meter_is_booked.sql");
    let plan = format!("EXPLAIN {}", statement.replace("$1", "'unused'").replace("$2", "''::bytea"));
    let (client, connection) = tokio_postgres::connect(&database.url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    let plan: Vec<String> = client.query(&plan, &[]).await.unwrap().iter().map(|row| row.get(0)).collect();
    assert!(plan.iter().any(|line| line.contains("balances_by_meter")), "{plan:?}");

    let is_booked = async |meter: &str| ledger.is_meter_booked(&meter.parse().unwrap()).await.unwrap();
    assert!(is_booked("m1").await && !is_booked("unused").await);
    let parked = "INSERT INTO parked (tenant, partition, reservation_id, call, taken_at, payload, state, reason) \
                  VALUES ('acme', 0, gen_random_uuid(), 'consume', now(), '\\006unused', 'conflict', 'test')";
    as_owner(&database, parked).await.unwrap();
    assert!(is_booked("unused").await, "an operator may still have it booked");
    assert!(ledger.has_booked(&tenant("acme")).await.unwrap());
    as_owner(&database, "UPDATE parked SET state = 'done', reason = NULL").await.unwrap();
    assert!(!is_booked("unused").await && !ledger.has_booked(&tenant("acme")).await.unwrap());
}
