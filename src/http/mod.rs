//! HTTP: parse, call one operation, answer.
//!
//! A request passes the envelope (`envelope`: its id and span, the route table of `routes`, the key check of `auth`), a
//! handler in the file of its resource, and one verb of [`crate::operations`]. Errors are problem documents, written in
//! one place (`problem`).

mod adjustments;
mod admin_audit;
mod admin_bans;
mod admin_clock;
mod admin_erasures;
mod admin_gate;
mod admin_grants;
mod admin_jobs;
mod admin_keys;
mod admin_load;
mod admin_overrides;
mod admin_policy;
mod admin_policy_file;
mod admin_policy_trial;
mod admin_prices;
mod admin_violations;
mod admin_webhooks;
mod answer;
mod auth;
mod batch;
mod batch_item;
mod bodies;
mod body;
mod cell;
mod cloud_event;
mod csv;
mod cursor;
mod decisions;
mod docs;
mod entries;
mod envelope;
mod events;
mod handlers;
mod headers;
mod health;
mod idempotency;
mod json;
mod list;
mod mutations;
mod openapi;
mod problem;
mod query;
mod ratelimit;
mod reconciliations;
mod remark;
mod reports;
mod reservations;
mod routes;
mod server;
mod shapes;
mod source;
mod state;
mod statements;
mod tables;
mod tenants;
mod upgrades;
mod usage;
mod version;
mod xlsx;

pub use admin_policy_file::AppliedPolicy;
pub use admin_policy_trial::{TriedPolicy, TriedRow};
pub(crate) use csv::{as_text, from_text};
pub use headers::HeaderOptions;
pub use openapi::openapi;
pub use server::{ListenError, Running, app_config, serve};
pub use state::{HttpOptions, Observation, Observe};
