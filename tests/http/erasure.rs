//! A subject's name is erased: no column of the ledger and no key of the gate has it, and the books stay proven.

use redis::AsyncCommands;
use serde_json::{Value, json};

use crate::ledger::{as_owner, rows_at};
use crate::support::app::*;

const NAME: &str = "ada-lovelace";
const ERASURES: &str = "/v1/admin/tenants/acme/erasures";

fn named() -> Value {
    json!({ "kind": "user", "id": NAME })
}

async fn started() -> TestApp {
    let app = an_app().at("2026-03-10T12:00:00Z").start().await;
    let per_user = json!({
        "id": "user-hour", "meter": "page", "window": "hour", "capacity": "10", "scope": "subject",
        "subject_kind": "user", "class": "rate",
        "punishment": { "memory_seconds": 600, "ban_at": 1, "ban_seconds": 600 }
    });
    let counted = json!({
        "id": "user-month", "meter": "page", "window": "month", "capacity": "100", "scope": "subject",
        "subject_kind": "user"
    });
    app.with_plan(json!([per_user, counted, day_of("1000")]), json!([quota_of("1000")])).await;
    app
}

/// Every text of the ledger that has the name, as `table.column`; also where it is packed.
async fn columns_with(app: &TestApp, name: &str) -> Vec<String> {
    let columns = rows_at(
        &app.database.url,
        "SELECT c.table_name, c.column_name FROM information_schema.columns c JOIN information_schema.tables t \
         USING (table_schema, table_name) WHERE table_schema = current_schema() AND table_type = 'BASE TABLE' \
         ORDER BY 1, 2",
    )
    .await;
    assert!(columns.len() > 200, "all tables are searched: {}", columns.len());
    let packed = name.bytes().map(|byte| format!("{byte:02x}")).collect::<String>();
    let mut searches = Vec::new();
    for column in &columns {
        let (table, column) = column.split_once(' ').unwrap();
        searches.push(format!(
            "SELECT '{table}.{column}' FROM \"{table}\" WHERE \"{column}\"::text LIKE '%{name}%' \
             OR \"{column}\"::text LIKE '%{packed}%'"
        ));
    }
    rows_at(&app.database.url, &searches.join(" UNION ")).await
}

/// Every key of the gate that has the name; the outboxes keep their last events for a time.
async fn keys_with(app: &TestApp, name: &str) -> Vec<String> {
    let mut redis = app.redis.connection().await;
    let keys: Vec<String> = redis.keys("*").await.unwrap();
    let mut found = Vec::new();
    for key in keys {
        let kind: String = redis::cmd("TYPE").arg(&key).query_async(&mut redis).await.unwrap();
        let read = match kind.as_str() {
            "string" => redis::cmd("GET").arg(&key).to_owned(),
            "hash" => redis::cmd("HGETALL").arg(&key).to_owned(),
            "list" => redis::cmd("LRANGE").arg(&key).arg(0).arg(-1).to_owned(),
            "zset" => redis::cmd("ZRANGE").arg(&key).arg(0).arg(-1).to_owned(),
            _ => continue,
        };
        let value: redis::Value = read.query_async(&mut redis).await.unwrap();
        if key.contains(name) || has(&value, name.as_bytes()) {
            found.push(key);
        }
    }
    found
}

fn has(value: &redis::Value, name: &[u8]) -> bool {
    match value {
        redis::Value::BulkString(bytes) => bytes.windows(name.len()).any(|part| part == name),
        redis::Value::Array(values) => values.iter().any(|value| has(value, name)),
        _ => false,
    }
}

async fn used_by_users(app: &TestApp) -> Vec<(String, String)> {
    let usage = app
        .get("/v1/tenants/acme/usage?group_by=subject&from=2026-03-01T00:00:00Z&to=2026-04-01T00:00:00Z")
        .await
        .expect(200);
    let of = |row: &Value| {
        (
            row["subject"]["id"].as_str().unwrap_or_default().to_owned(),
            row["consumed"].as_str().unwrap().to_owned(),
        )
    };
    let mut users: Vec<_> = usage.body["data"].as_array().unwrap().iter().map(of).collect();
    users.retain(|(id, _)| !id.is_empty());
    users.sort();
    users
}

#[tokio::test(flavor = "multi_thread")]
async fn an_erased_name_is_nowhere_and_what_it_used_stays_in_the_books() {
    let app = started().await;
    app.define("bans/spam", json!({ "tenant": "acme", "subject": named(), "until": "2026-03-10T12:00:01Z" }))
        .await;
    app.define(
        "overrides/more",
        json!({ "tenant": "acme", "level": "subject", "subject": named(), "limit": "user-hour", "capacity": "9" }),
    )
    .await;
    app.define("tenants/acme", json!({ "plan": "plan", "subjects": [named().with("plan", "plan")] })).await;
    app.move_clock("2026-03-10T12:00:02Z").await;
    let told = pages(3).by(NAME).with("metadata", json!({ "who": NAME, "job": "1" }));
    app.post_keyed(USAGE, "used", told).await.expect(201);
    let held = app.post_keyed(RESERVATIONS, "held", pages(2).by(NAME)).await.expect(201);
    app.consume(held.text("/id"), "2").await.expect(200);
    let open = app.held(pages(1).by("ben")).await;
    // One too many: a ban by the limit.
    app.post_keyed(RESERVATIONS, "many", pages(8).by(NAME)).await;
    app.drained().await;
    assert!(columns_with(&app, NAME).await.len() >= 4, "there is something to erase");

    let erased = app.post(ERASURES, named()).await.expect(200);
    let pseudonym = erased.text("/pseudonym").to_owned();
    assert!(pseudonym.starts_with("erased-"), "{erased:?}");
    assert_eq!(columns_with(&app, NAME).await, [""; 0]);
    assert_eq!(keys_with(&app, NAME).await, [""; 0]);
    assert_eq!(used_by_users(&app).await, [(pseudonym.clone(), "5".to_owned())]);
    assert_eq!(app.get("/v1/admin/bans?tenant=acme").await.expect(200).body["data"], json!([]));
    let audited = app.get("/v1/admin/audit?action=erase").await.expect(200);
    assert_eq!((audited.text("/data/0/object_kind"), audited.text("/data/0/object_id")), ("tenant", "acme"));
    let again = app.post(ERASURES, named()).await.expect(200);
    assert_eq!(again.body["pseudonym"], Value::Null, "a repeat finds nothing");

    // The same name is a new subject's: nothing is used of its limits, and its use is apart.
    let anew = app.post_keyed(RESERVATIONS, "anew", pages(4).by(NAME)).await.expect(201);
    let limits = anew.body["limits"].as_array().unwrap();
    let user = limits.iter().find(|limit| limit["id"] == "user-month").unwrap();
    assert_eq!((&user["consumed"], &user["reserved"]), (&json!("0"), &json!("4")));
    app.consume(anew.text("/id"), "4").await.expect(200);
    app.consume(&open, "1").await.expect(200);
    app.drained().await;
    let expected = [(NAME, "4"), ("ben", "1"), (pseudonym.as_str(), "5")];
    assert_eq!(used_by_users(&app).await, expected.map(|(id, used)| (id.to_owned(), used.to_owned())));
    // What was done before is still known by its key.
    app.post_keyed(USAGE, "used", pages(3).by(NAME).with("metadata", json!({ "who": NAME, "job": "1" })))
        .await
        .expect(200);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_logs_of_an_erased_subject_go_with_its_counters() {
    let app = an_app().at("2026-03-10T12:00:00Z").start().await;
    app.define("meters/call", json!({ "unit": "call", "booked": false })).await;
    app.define("operations/read", json!({ "costs": [{ "meter": "call", "base": "1" }] })).await;
    let log_of = |meter: &str| {
        json!({ "id": format!("log-{meter}"), "meter": meter, "algorithm": "sliding_log", "window_seconds": 60,
            "capacity": "10", "class": "rate", "scope": "subject", "subject_kind": "user" })
    };
    app.with_plan(json!([log_of("page"), log_of("call")]), json!([])).await;
    for name in [NAME, "ben"] {
        app.post_keyed(USAGE, name, pages(1).by(name)).await.expect(201);
        let check = json!({ "tenant": "acme", "operation": "read", "subjects": { "user": name } });
        app.post("/v1/ratelimit/check", check).await.expect(200);
    }
    app.drained().await;
    let logs = async || -> Vec<String> { app.redis.connection().await.keys("*log:acme:=*").await.unwrap() };
    assert_eq!(logs().await.len(), 4);
    app.post(ERASURES, named()).await.expect(200);
    assert_eq!(logs().await.len(), 2, "those of others stay");
    let same_name = app.post_keyed(USAGE, "same-name", pages(10).by(NAME)).await;
    same_name.expect(201);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subject_that_holds_something_is_erased_once_that_is_resolved() {
    let app = started().await;
    let held = app.held(pages(2).by(NAME)).await;
    let ban = json!({ "tenant": "acme", "subject": named(), "until": "2026-03-11T12:00:00Z" });
    app.define("bans/leaves", ban).await;
    app.post(ERASURES, named()).await.is_problem(409, "in_use");
    app.get("/v1/admin/bans/leaves?tenant=acme").await.expect(200);
    app.consume(&held, "2").await.expect(200);
    let erased = app.post(ERASURES, named()).await.expect(200);
    assert_eq!(columns_with(&app, NAME).await, [""; 0]);
    // Another subject's counters, and those of the erased one, are restored from the books as before.
    app.redis.flush().await;
    app.held(pages(1).by("ben")).await;
    app.drained().await;
    assert_eq!(columns_with(&app, NAME).await, [""; 0]);
    assert_eq!(keys_with(&app, NAME).await, [""; 0]);
    assert_eq!(used_by_users(&app).await, [(erased.text("/pseudonym").to_owned(), "2".to_owned())]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn when_its_own_counters_began_is_erased_too() {
    let app = started().await;
    let other = json!({
        "id": "user-month", "meter": "page", "window": "day", "capacity": "100", "scope": "subject",
        "subject_kind": "user"
    });
    app.define("plans/other", json!({ "limits": [other], "quotas": [quota_of("1000")] })).await;
    app.define("tenants/acme", json!({ "plan": "plan", "subjects": [named().with("plan", "other")] })).await;
    assert!(columns_with(&app, NAME).await.contains(&"tenants.counter_resets".to_owned()));
    app.post(ERASURES, named()).await.expect(200);
    assert_eq!(columns_with(&app, NAME).await, [""; 0]);
    app.post_keyed(USAGE, "anew", pages(3).by("ben")).await.expect(201);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_gate_drops_the_light_records_of_an_erased_name_once_they_hold_nothing() {
    let app = started().await;
    app.define("meters/call", json!({ "unit": "call", "booked": false, "without_limit": "unlimited" })).await;
    let calls = |amount: &str| json!({ "tenant": "acme", "meter": "call", "amount": amount });
    app.post_keyed(USAGE, "used", calls("1").by(NAME)).await.expect(201);
    let open = app.held(calls("2").by(NAME)).await;
    let others = app.held(calls("3").by("ben")).await;
    app.post(ERASURES, named()).await.is_problem(409, "in_use");
    app.release(&open).await.expect(200);
    assert_eq!(keys_with(&app, NAME).await.len(), 2, "both records name it");
    app.post(ERASURES, named()).await.expect(200);
    assert_eq!(keys_with(&app, NAME).await, [""; 0]);
    app.consume(&others, "3").await.expect(200);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_instance_that_has_not_heard_of_an_erasure_books_nothing_under_the_old_number() {
    let app = started().await;
    // Its number is remembered once it has been read.
    for (key, amount) in [("first", 2), ("second", 1)] {
        app.post_keyed(USAGE, key, pages(amount).by(NAME)).await.expect(201);
        app.drained().await;
    }
    // As another instance does it, whose notice is late.
    let erase = "UPDATE subjects SET id = 'erased-' || number WHERE id = 'ada-lovelace'; \
                 UPDATE cursors SET erasures = erasures + 1";
    as_owner(&app.database, erase).await.unwrap();
    app.redis.flush().await;
    app.post_keyed(USAGE, "after", pages(2).by(NAME)).await.expect(201);
    app.drained().await;
    let used = used_by_users(&app).await;
    assert_eq!(used.iter().map(|(_, used)| used.as_str()).collect::<Vec<_>>(), ["2", "3"], "{used:?}");
    assert_eq!(used[0].0, NAME);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_under_which_something_waits_is_not_erased() {
    let app = started().await;
    app.post_keyed(USAGE, "used", pages(3).by(NAME)).await.expect(201);
    app.drained().await;
    let event = "INSERT INTO quarantine (partition, epoch, sequence, tenant, event, reason) \
                 VALUES (0, 1, 1000000, 'acme', '\\x04'::bytea || 'user' || '\\x0c' || 'ada-lovelace', 'test')";
    as_owner(&app.database, event).await.unwrap();
    app.post(ERASURES, named()).await.is_problem(409, "in_use");
    assert_eq!(used_by_users(&app).await, [(NAME.to_owned(), "3".to_owned())]);
    as_owner(&app.database, "UPDATE quarantine SET status = 'discarded'").await.unwrap();
    app.post(ERASURES, named()).await.expect(200);
    assert_eq!(columns_with(&app, NAME).await, [""; 0]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_erasure_says_what_is_wrong_with_it_and_is_for_admins() {
    let app = started().await;
    app.post("/v1/admin/tenants/nobody/erasures", named()).await.is_problem(404, "not_found");
    let wrong = app.post(ERASURES, json!({ "kind": "user", "id": "{" })).await;
    wrong.is_problem(422, "validation_failed");
    assert_eq!(wrong.text("/errors/0/pointer"), "/id");
    let shared = app.post(ERASURES, json!({ "kind": "anonymous", "id": "203.0.113.7" })).await;
    shared.is_problem(422, "validation_failed");
    assert_eq!(shared.text("/errors/0/pointer"), "/kind");
    app.make_key("finance", None).await.post(ERASURES, named()).await.is_problem(403, "forbidden");
    let nobody = app.post(ERASURES, named()).await.expect(200);
    assert_eq!(nobody.body["pseudonym"], Value::Null);
    app.finish().await;
}
