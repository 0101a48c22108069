//! The metrics of booking: what waits in the outboxes, and what became of it.

use prometheus_client::{
    metrics::{counter::Counter, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};

use super::handles::*;

const BATCH_EVENTS: [f64; 12] =
    [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1_000.0, 2_000.0, 5_000.0];

/// Events that wait to be booked, and those that were.
pub(super) struct Booking {
    pub(super) outbox_entries: Gauge,
    pub(super) outbox_bytes: Gauge,
    pub(super) outbox_oldest: Seconds,
    pub(super) outbox_tails: Tails,
    pub(super) writer_lag: LookedUp,
    pub(super) writer_batch: Histogram,
    pub(super) booked: Counter,
    pub(super) quarantined: Counter,
    pub(super) quarantine_open: LookedUp,
    pub(super) damaged: LookedUp,
    pub(super) gaps: Counter,
    pub(super) lost: Counter,
    pub(super) acknowledged_lost: Counter,
}

impl Booking {
    pub(super) fn new(registry: &mut Registry) -> Self {
        Self {
            outbox_entries: gauge(registry, "outbox_entries", "Events that wait to be booked"),
            outbox_bytes: gauge(
                registry,
                "outbox_waiting_bytes",
                "Size of the events that wait to be booked, by a sample of them",
            ),
            outbox_oldest: seconds(
                registry,
                "outbox_oldest_age",
                "Age of the oldest event that waits to be booked",
            ),
            outbox_tails: tails(registry),
            writer_lag: looked_up(
                registry,
                "writer_lag_events",
                "Events between the writer and the outbox's end",
            ),
            writer_batch: histogram(
                registry,
                "writer_batch_events",
                "Events booked in one transaction",
                &BATCH_EVENTS,
            ),
            booked: counter(registry, "events_booked", "Events booked into the ledger"),
            quarantined: counter(registry, "events_quarantined", "Events that could not be booked"),
            quarantine_open: looked_up(registry, "quarantine_open_events", "Events in quarantine now"),
            damaged: looked_up(
                registry,
                "damaged_items",
                "Items skipped lately because they cannot be decoded",
            ),
            gaps: counter(registry, "outbox_gaps", "Places where events were missing"),
            lost: counter(registry, "events_lost", "Events known to be missing"),
            acknowledged_lost: counter(
                registry,
                "acknowledged_events_lost",
                "Events that this instance acknowledged and that were never booked",
            ),
        }
    }
}
