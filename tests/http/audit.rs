//! `/v1/admin/audit`: who changed what.

use serde_json::{Value, json};

use crate::support::app::*;

const AUDIT: &str = "/v1/admin/audit";
const METER: &str = "/v1/admin/meters/page";

fn definition(max_life_seconds: u32) -> Value {
    json!({ "unit": "page", "decimals": 0, "max_life_seconds": max_life_seconds })
}

async fn audited(app: &TestApp, filters: &str) -> Vec<Value> {
    let answer = app.get(&format!("{AUDIT}?{filters}")).await.expect(200);
    answer.body["data"].as_array().unwrap().clone()
}

#[tokio::test]
async fn a_change_of_policy_is_audited_with_the_definitions_before_and_after_it() {
    let app = spawn_app().await;
    app.put(METER, definition(3600)).await.expect(201);
    app.put(METER, definition(7200)).await.expect(200);
    assert_eq!(app.delete(METER).await.status, 204);
    let changes = audited(&app, "object_kind=meter&object_id=page").await;
    let life = |definition: &Value| definition["max_life_seconds"].as_u64();
    let told: Vec<_> = changes
        .iter()
        .map(|change| (change["action"].as_str().unwrap(), life(&change["before"]), life(&change["after"])))
        .collect();
    let expected = [("delete", Some(7200), None), ("put", Some(3600), Some(7200)), ("put", None, Some(3600))];
    assert_eq!(told, expected, "{changes:?}");
    let versions: Vec<_> = changes.iter().map(|change| change["version"].as_u64().unwrap()).collect();
    assert_eq!(versions, [3, 2, 1]);
    assert!(changes[0]["after"].is_null() && changes[2]["before"].is_null());
    assert!(changes.iter().all(|change| change["object_kind"] == "meter" && change["object_id"] == "page"));
    app.finish().await;
}

#[tokio::test]
async fn changes_are_found_by_who_made_them_what_they_did_and_when() {
    let app = spawn_app().await;
    app.put(METER, definition(3600)).await.expect(201);
    let (other, by_other) = app.make_named_key("admin").await;
    other.put(METER, definition(7200)).await.expect(200);
    assert_eq!(other.delete(METER).await.status, 204);
    let of_other = audited(&app, &format!("actor={by_other}")).await;
    assert_eq!(of_other.len(), 2, "{of_other:?}");
    let deleted = audited(&app, &format!("actor={by_other}&action=delete&object_kind=meter")).await;
    assert_eq!((deleted.len(), &deleted[0]["before"]["max_life_seconds"]), (1, &json!(7200)));
    let keys = audited(&app, "object_kind=key&action=create").await;
    assert!(keys.iter().any(|change| change["object_id"] == by_other.as_str()), "{keys:?}");
    assert!(keys.iter().all(|change| change["before"].is_null() && change["version"].is_null()));
    let at = deleted[0]["at"].as_str().unwrap();
    assert!(audited(&app, &format!("to={at}")).await.len() >= 3);
    assert_eq!(audited(&app, &format!("from={at}&object_kind=meter")).await.len(), 1);
    assert_eq!(audited(&app, "object_kind=plan").await.len(), 0);
    app.finish().await;
}

#[tokio::test]
async fn the_audit_log_is_read_a_page_at_a_time_and_by_those_who_may() {
    let app = spawn_app().await;
    for max_life_seconds in 3601..3607 {
        let answer = app.put(METER, definition(max_life_seconds)).await;
        assert!(answer.status < 300, "{answer:?}");
    }
    let (mut cursor, mut versions) = (String::new(), Vec::new());
    loop {
        let page = app.get(&format!("{AUDIT}?object_kind=meter&limit=2{cursor}")).await.expect(200).body;
        versions.extend(page["data"].as_array().unwrap().iter().map(|row| row["version"].as_u64().unwrap()));
        let Some(next) = page["next_cursor"].as_str() else { break };
        cursor = format!("&cursor={next}");
    }
    assert_eq!(versions, [6, 5, 4, 3, 2, 1]);
    app.get(&format!("{AUDIT}?object_id=page")).await.is_problem(400, "invalid_request");
    app.get(&format!("{AUDIT}?action=paint")).await.is_problem(400, "invalid_request");
    app.get(&format!("{AUDIT}?actor=")).await.is_problem(400, "invalid_request");
    app.get(&format!("{AUDIT}?colour=red")).await.is_problem(400, "invalid_request");
    let finance = app.make_key("finance", None).await;
    assert_eq!(finance.get(AUDIT).await.status, 200);
    let service = app.make_key("service", None).await;
    service.get(AUDIT).await.is_problem(403, "forbidden");
    app.finish().await;
}
