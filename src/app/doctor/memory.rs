//! The memory that Redis needs at a given rate of calls.

use super::{Finding, Verdict};
use crate::gate::NodeFacts;
use crate::settings::Settings;

/// What a resolved reservation with an idempotency key takes of Redis's memory, measured.
const TOMBSTONE_BYTES: u64 = 170;
/// What an event takes in the outbox, measured.
const EVENT_BYTES: u64 = 300;
/// A reserve and its consume.
const EVENTS_OF_CALL: u64 = 2;

/// What so many reserves a second with an idempotency key need, each consumed: what is remembered of them, and the
/// outbox. Tenants' counters and holds that are open for long come on top.
pub(super) fn finding(settings: &Settings, node: &NodeFacts, calls_per_second: u32) -> Finding {
    let calls = u64::from(calls_per_second);
    let remembered =
        calls.saturating_mul(settings.gate.tombstone_keyed_seconds).saturating_mul(TOMBSTONE_BYTES);
    let tail = calls
        .saturating_mul(EVENTS_OF_CALL * EVENT_BYTES)
        .saturating_mul(settings.writer.safety_tail_seconds);
    let needed = remembered.saturating_add(tail.min(settings.writer.safety_tail_bytes));
    let most = node.number("maxmemory").unwrap_or(0);
    let name = format!("redis memory for {calls} keyed calls a second, bytes");
    Finding::sound(&name, needed).unless(
        most == 0 || needed <= most,
        Verdict::Warning,
        format!("more than `maxmemory`, {most}: raise it"),
    )
}
