//! The API from outside, as its callers meet it: a running service, real servers behind it.

pub mod adjustments;
mod admin;
mod anomalies;
mod anonymous;
mod audit;
mod authorisation;
mod balances_report;
mod bans;
mod batch;
mod budgets;
mod calendars;
mod changes_under_use;
mod checks;
mod checks_together;
mod concurrency;
mod connections;
pub mod corrections;
mod counters;
mod decision_log;
mod decisions;
mod destructive;
mod documents;
mod duplicates;
mod edge;
mod entries_report;
mod erasure;
pub mod events;
mod explained;
mod fixed_window;
mod flood;
mod framing;
pub mod global;
mod grant_ends;
mod grant_instants;
mod grants;
mod grants_left;
mod health;
mod hostile;
mod in_use;
mod instances;
mod intervals;
mod kinds;
mod leaked_report;
mod leaky_bucket;
mod light_logs;
mod light_reservations;
mod list_files;
mod load;
mod lowered_allowances;
mod made_up_keys;
mod metrics;
mod mixed_reservations;
mod money_adjustments;
mod movements;
mod next_periods;
mod periods;
mod plan_changes;
mod policy_changes;
mod policy_document;
mod policy_file;
mod precedence;
mod prefilter;
mod price_changes;
mod prices;
mod proxies;
mod punishments;
mod quota_modes;
mod ratelimit;
mod recurring_grants;
mod repeats;
mod reports;
mod reservations;
mod resources;
mod retries;
mod revenue_report;
mod rollover_report;
mod sliding_counter;
mod sliding_log;
mod state_table;
pub mod statement_files;
pub mod statements;
mod subjects;
mod supplier_bills;
mod tenants;
mod token_bucket;
mod top_report;
mod trials;
mod unwound_corrections;
mod upgrades;
mod usage;
mod waiting_corrections;
mod webhooks;

use serde_json::json;

use crate::support::app::*;

/// A service with a meter, an operation, a plan of 100 a day and two tenants on it, `acme` and `other`.
pub async fn with_policy() -> TestApp {
    let app = spawn_app().await;
    let limit =
        json!({ "id": "day", "meter": "page", "algorithm": "calendar", "window": "day", "capacity": "100" });
    let costs = json!([{ "meter": "page", "weights": { "pages": "1" }, "factors": { "handwriting": "2" } }]);
    for (path, definition) in [
        ("meters/page", json!({ "id": "page", "unit": "page", "decimals": 0 })),
        ("operations/submit", json!({ "id": "submit", "costs": costs })),
        ("plans/plan", json!({ "id": "plan", "limits": [limit] })),
        ("tenants/acme", json!({ "id": "acme", "plan": "plan" })),
        ("tenants/other", json!({ "id": "other", "plan": "plan" })),
    ] {
        let made = app.define(path, definition).await.expect(201);
        assert!(!made.header("etag").is_empty());
    }
    app
}
