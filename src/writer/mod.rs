//! Books the events of the gate's outboxes in the ledger, exactly once.
//!
//! [`Writer`] reads the outboxes from their cursors, books many partitions' events in one transaction ([`apply`]),
//! publishes the new positions to the gate and trims each outbox down to a safety tail. A pure function decides what a
//! batch does ([`batch`]). Booking is exactly once because the cursor moves in the entries' transaction.

mod abandoned;
mod apply;
pub mod batch;
mod carried;
mod discard;
mod fail_point;
mod failure;
mod gate_outbox;
mod judge;
mod lives;
mod observer;
mod outbox;
mod pace;
mod position;
mod refused;
mod retry;
mod run;
mod tail;

pub use apply::{Applied, PartitionEvents, apply};
pub use discard::{discard, unbilled};
pub use fail_point::{FailPoint, FailPoints};
pub use gate_outbox::GateOutbox;
pub use observer::{Alarm, WriterObserver};
pub use outbox::{Outbox, OutboxEntry, OutboxError};
pub use retry::{Retried, retry};
pub use run::{Pass, Writer, WriterOptions};
pub use tail::TailStretch;
