//! What callers ask of the gate: reserve, usage, consume, release, extend, and what ends a hold by itself.

pub(super) mod acknowledge;
pub(super) mod admission;
pub(super) mod call_metrics;
pub(super) mod cost;
pub(super) mod counters;
pub(super) mod expire;
pub(super) mod fingerprint;
pub(super) mod limit_status;
pub(super) mod refusal;
pub(super) mod repeat;
pub(super) mod reserve;
pub(super) mod reserve_answer;
pub(super) mod resolve;
pub(super) mod tombstone;
