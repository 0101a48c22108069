//! Postgres fails over to a replica that lacked the last commits: an instance's memory returns to the ledger's state.

use std::time::Duration;

use serde_json::json;

use crate::ledger::{as_owner, rows};
use crate::support::app::*;
use crate::support::wait::wait_for;

const PLAN: &str = "/v1/admin/plans/plan";
const PATIENCE: Duration = Duration::from_secs(30);
/// Disables the triggers that refuse edits of the books: a replica simply lacks the rows.
const AS_A_REPLICA: &str = "SET session_replication_role = replica";

/// By which capacity an instance decides.
async fn capacity(caller: &Caller) -> String {
    caller.get("/v1/tenants/acme/quota").await.text("/limits/0/capacity").to_owned()
}

async fn decides_by(caller: &Caller, expected: &str) {
    wait_for(&format!("it decides by {expected}"), PATIENCE, async || {
        (capacity(caller).await == expected).then_some(())
    })
    .await;
}

async fn version(app: &TestApp) -> u64 {
    app.app().ledger.policy_version().await.unwrap()
}

/// Sets the policy back to this version, and then runs the statements `given`.
async fn set_back(app: &TestApp, version: u64, given: &str) {
    let statements = format!(
        "{AS_A_REPLICA}; BEGIN; \
         DELETE FROM policy_history WHERE policy_version > {version}; \
         UPDATE policy_version SET version = {version}; \
         DELETE FROM policy_objects o WHERE NOT EXISTS \
             (SELECT FROM policy_history h WHERE h.kind = o.kind AND h.id = o.id); \
         UPDATE policy_objects o SET version = h.version, definition = h.definition FROM \
             (SELECT DISTINCT ON (kind, id) * FROM policy_history ORDER BY kind, id, version DESC) h \
             WHERE h.kind = o.kind AND h.id = o.id; \
         {given} COMMIT"
    );
    as_owner(&app.database, &statements).await.unwrap();
}

/// Ends every connection, as the server that is gone does.
async fn cut_off(app: &TestApp) {
    let others = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                  WHERE datname = current_database() AND pid <> pg_backend_pid()";
    as_owner(&app.database, others).await.unwrap();
}

/// Tries until Postgres is there again.
async fn until_there(call: impl AsyncFn() -> Answered) -> Answered {
    wait_for("the ledger is there again", PATIENCE, async || {
        let answer = call().await;
        (answer.status != 503).then_some(answer)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ledger_that_was_set_back_below_the_policy_in_memory_is_followed_at_once() {
    let app = spawn_app().await;
    app.with_day_of("1000").await;
    let caller = app.caller();
    let kept = version(&app).await;
    app.put(PLAN, json!({ "limits": json!([day_of("2000")]) })).await;
    decides_by(&caller, "2000").await;
    set_back(&app, kept, "").await;
    cut_off(&app).await;
    decides_by(&caller, "1000").await;
    until_there(async || caller.put(PLAN, json!({ "limits": json!([day_of("10")]) })).await)
        .await
        .expect(200);
    assert_eq!(version(&app).await, kept + 1, "the lost version's number is given anew");
    assert_eq!(capacity(&caller).await, "10", "the instance that made a change sees it");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_version_that_was_lost_and_issued_again_is_read_again_without_a_notice() {
    let app = spawn_app().await;
    app.with_day_of("1000").await;
    let caller = app.caller();
    let kept = version(&app).await;
    app.put(PLAN, json!({ "limits": json!([day_of("2000")]) })).await;
    decides_by(&caller, "2000").await;
    // Another instance has written the next version.
    let next = format!(
        "UPDATE policy_objects SET version = version + 1, \
             definition = replace(definition::text, '\"1000\"', '\"10\"')::jsonb WHERE kind = 'plan'; \
         UPDATE policy_version SET version = {kept} + 1; \
         INSERT INTO policy_history (kind, id, version, policy_version, definition) \
             SELECT kind, id, version, {kept} + 1, definition FROM policy_objects WHERE kind = 'plan';"
    );
    set_back(&app, kept, &next).await;
    assert_eq!(version(&app).await, kept + 1);
    decides_by(&caller, "10").await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_does_not_come_to_refer_to_a_plan_that_was_lost() {
    let app = spawn_app().await;
    app.with_day_of("1000").await;
    let kept = version(&app).await;
    app.define("plans/lost", json!({ "limits": json!([day_of("5")]) })).await;
    let caller = app.caller();
    // In one go, so that the instance cannot have noticed.
    let other = format!(
        "UPDATE policy_version SET version = {kept} + 1; \
         INSERT INTO policy_history (kind, id, version, policy_version, definition) \
             VALUES ('plan', 'other', 1, {kept} + 1, '{{}}');"
    );
    for given in ["", &other] {
        set_back(&app, kept, given).await;
        let answer = caller.put("/v1/admin/tenants/new", json!({ "plan": "lost" })).await;
        answer.is_problem(422, "validation_failed");
        assert_eq!(answer.pointers(), ["/plan"]);
        set_back(&app, kept, "").await;
        wait_for("the instance has the lost plan again", PATIENCE, async || {
            let answer = caller.put("/v1/admin/plans/lost", json!({ "limits": json!([day_of("5")]) })).await;
            (answer.status == 201).then_some(())
        })
        .await;
    }
    app.finish().await;
}

async fn is_accepted(caller: &Caller) -> bool {
    caller.get("/v1/tenants/acme/quota").await.status == 200
}

/// The ledger is set back to before this key, the newest change of keys, was made.
async fn lose_newest_key(app: &TestApp, made: &Answered) {
    let statements = format!(
        "{AS_A_REPLICA}; BEGIN; DELETE FROM api_keys WHERE id = '{}'; UPDATE key_changes SET number = number - 1; COMMIT",
        made.text("/id")
    );
    as_owner(&app.database, &statements).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_key_stops_although_its_change_took_the_number_of_one_that_was_lost() {
    let app = spawn_app().await;
    app.without_limits().await;
    let here = app.caller();
    let make = async |name: &str| {
        here.post("/v1/admin/keys", json!({ "name": name, "role": "service" })).await.expect(201)
    };
    let (victim, lost) = (make("victim").await, make("lost").await);
    let with = |made: &Answered| here.with_key(Some(made.text("/key")));
    assert!(is_accepted(&with(&victim)).await && is_accepted(&with(&lost)).await);
    lose_newest_key(&app, &lost).await;
    assert_eq!(here.delete(&format!("/v1/admin/keys/{}", victim.text("/id"))).await.status, 204);
    assert!(!is_accepted(&with(&victim)).await, "the instance that revoked it answers after that");
    assert!(!is_accepted(&with(&lost)).await, "what is lost is no key any more");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_revocation_and_a_lost_key_are_noticed_without_a_notice() {
    let app = spawn_app().await;
    app.without_limits().await;
    let here = app.caller();
    let made = here.post("/v1/admin/keys", json!({ "name": "lost", "role": "service" })).await.expect(201);
    let lost = here.with_key(Some(made.text("/key")));
    assert!(is_accepted(&lost).await);
    lose_newest_key(&app, &made).await;
    wait_for("the lost key stops", PATIENCE, async || (!is_accepted(&lost).await).then_some(())).await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_revoked_by_hand_stops_while_other_news_comes_without_a_pause() {
    let app = spawn_app().await;
    app.without_limits().await;
    let here = app.caller();
    let made = here.post("/v1/admin/keys", json!({ "name": "worker", "role": "service" })).await.expect(201);
    let worker = here.with_key(Some(made.text("/key")));
    assert!(is_accepted(&worker).await);
    let (others, connection) =
        tokio_postgres::connect(&app.database.url, tokio_postgres::NoTls).await.unwrap();
    let connection = tokio::spawn(connection);
    let others = tokio::spawn(async move {
        let notice = r#"{"kind":"tenant","id":"other","version":1}"#;
        while others.execute("SELECT pg_notify('tollgate_changes', $1)", &[&notice]).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    let by_hand = format!("UPDATE api_keys SET revoked_at = now() WHERE id = '{}'", made.text("/id"));
    as_owner(&app.database, &by_hand).await.unwrap();
    wait_for("the revoked key stops", PATIENCE, async || (!is_accepted(&worker).await).then_some(())).await;
    others.abort();
    connection.abort();
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_sealed_under_a_number_that_was_lost_are_read_anew() {
    let app = an_app().without_jobs().start().await;
    app.with_day_of("1000").await;
    let operations = &app.app().operations;
    let use_page = async |key: &str| app.use_pages(key, "1").await.expect(201).text("/id").to_owned();
    let sealed = "SELECT partition, number FROM key_stretches";
    let seal = async |key: &str| {
        use_page(key).await;
        app.drained().await;
        app.app().ledger.seal_keys(app.clock.now_ms()).await.unwrap();
        operations.memory.key_filters.load_key_filters().await;
        rows(&app.database, sealed).await
    };
    let before = seal("lost").await;
    as_owner(&app.database, "DELETE FROM key_stretches").await.unwrap();
    assert_eq!(seal("kept").await, before, "the number is given anew");
    // The gate has forgotten it; the ledger has not.
    let mut gate = app.redis.connection().await;
    let records: Vec<String> = redis::cmd("KEYS").arg("tg1:*:rsv:*").query_async(&mut gate).await.unwrap();
    redis::cmd("DEL").arg(records).exec_async(&mut gate).await.unwrap();
    let again = app.use_pages("kept", "1").await.expect(200);
    assert_eq!(again.body["replayed"], true);
    app.finish().await;
}
