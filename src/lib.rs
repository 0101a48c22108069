//! Tollgate: a quota gate and billing ledger.
//!
//! The map, from the inside out (who may import whom is held by `tests/tidy.rs`):
//! [`domain`] is pure; [`gate`] speaks Redis and [`ledger`] speaks Postgres, both know only the domain;
//! [`outbound`] calls servers that administrators name, and knows only the domain too;
//! [`writer`] carries events from the gate's outbox into the ledger; [`operations`] are the verbs;
//! [`jobs`] wake by clock; [`http`] parses, calls one operation and answers; [`app`] builds and starts it all.

pub mod app;
pub mod beat;
pub mod cli;
pub mod clock;
pub mod domain;
pub mod embedded;
pub mod gate;
pub mod http;
pub mod jobs;
pub mod ledger;
pub mod operations;
pub mod outbound;
pub mod settings;
pub mod telemetry;
pub mod writer;
