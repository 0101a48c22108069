//! A tenant of which automation has written a version each minute: what held at an instant is found without reading
//! all.

use serde_json::Value;
use tokio_postgres::{Client, NoTls, SimpleQueryMessage};

use super::super::{as_owner, ledger};

/// The last version begins on 2026-02-04 at 17:20.
const VERSIONS: &str = "INSERT INTO policy_history (kind, id, version, policy_version, definition, effective_at) \
    SELECT 'tenant', 'acme', i, i, jsonb_build_object('n', i, 'plan', 'plan', 'sandbox', i % 2 = 0), \
        '2026-01-01Z'::timestamptz + i * interval '1 minute' \
    FROM generate_series(1, 50000) i; \
    INSERT INTO policy_history (kind, id, version, policy_version, definition, effective_at) \
    SELECT 'plan', 'plan', i, 50000 + i, jsonb_build_object('n', i), '2026-01-01Z'::timestamptz + i * interval '1 minute' \
    FROM generate_series(1, 50000) i; \
    ANALYZE policy_history";

/// What a statement answers as text, and how many rows of the history of policy it reads.
async fn asked(client: &Client, name: &str, arguments: &str) -> (Vec<String>, u64) {
    let found = client.simple_query(&format!("EXECUTE {name} ({arguments})")).await.unwrap();
    let rows = found.iter().filter_map(|message| match message {
        SimpleQueryMessage::Row(row) => {
            Some((0..row.len()).filter_map(|at| row.get(at)).collect::<Vec<_>>().join(" "))
        }
        _ => None,
    });
    let explain = format!("EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) EXECUTE {name} ({arguments})");
    let explained = client.simple_query(&explain).await.unwrap();
    let text = explained.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.get(0),
        _ => None,
    });
    let plan: Value = serde_json::from_str(text.unwrap()).unwrap();
    (rows.collect(), of_history(&plan[0]["Plan"]))
}

fn of_history(step: &Value) -> u64 {
    let whole = |text: String| text.split('.').next().and_then(|whole| whole.parse::<u64>().ok());
    let figure = |name: &str| whole(step[name].to_string()).unwrap_or_default();
    let own = match step["Relation Name"].as_str() {
        Some("policy_history") => {
            (figure("Actual Rows") + figure("Rows Removed by Filter")) * figure("Actual Loops")
        }
        _ => 0,
    };
    own + step["Plans"].as_array().into_iter().flatten().map(of_history).sum::<u64>()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_held_as_a_period_ended_is_found_among_fifty_thousand_versions_of_a_tenant() {
    let (database, _ledger) = ledger().await;
    as_owner(&database, VERSIONS).await.unwrap();
    let (client, connection) = tokio_postgres::connect(&database.url, NoTls).await.unwrap();
    tokio::spawn(connection);
    for (name, takes, text) in [
        (
            "terms_at",
            "text[], timestamptz[], timestamptz[]",
            include_str!("../../../src/ledger/sql/terms_at.sql"),
        ),
        ("sandboxes", "text[], timestamptz[]", include_str!("../../../src/ledger/sql/sandboxes.sql")),
    ] {
        client.batch_execute(&format!("PREPARE {name} ({takes}) AS {text}")).await.unwrap();
    }
    let terms = "ARRAY['acme'], ARRAY['2026-01-04Z'::timestamptz], ARRAY['2026-02-04T17:00Z'::timestamptz]";
    let (found, read) = asked(&client, "terms_at", terms).await;
    assert!(found.len() == 1 && found[0].matches("\"n\": 49979").count() == 2, "{found:?}");
    assert!(read < 100, "{read} rows are read");
    let at = "ARRAY['acme', 'acme', 'acme'], \
              ARRAY['2026-02-04T17:00Z', '2026-02-04T16:59Z', '2026-02-04T16:58Z']::timestamptz[]";
    let (found, read) = asked(&client, "sandboxes", at).await;
    assert_eq!(found, ["1", "3"]);
    assert!(read < 300, "{read} rows are read");
    // Before it was made it is as it was then.
    let (found, _) = asked(&client, "sandboxes", "ARRAY['acme'], ARRAY['2025-12-01Z'::timestamptz]").await;
    assert_eq!(found, [""; 0]);
    let early = "ARRAY['acme'], ARRAY['2025-11-01Z'::timestamptz], ARRAY['2025-12-01Z'::timestamptz]";
    let (found, _) = asked(&client, "terms_at", early).await;
    assert!(found.len() == 1 && found[0].matches("\"n\": 1,").count() == 1, "{found:?}");
}
