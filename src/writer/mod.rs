//! The bridge from the gate's outboxes to the ledger: the books' one entrance, exactly once.
//!
//! [`Writer`] reads the outboxes from their cursors, books many partitions' events in one transaction ([`apply`]),
//! publishes the new positions to the gate and trims what is behind a safety tail. What exactly a batch does is decided
//! purely ([`batch`]); the cursor moved in the same transaction as the entries is what makes it exactly once.

mod abandoned;
mod apply;
pub mod batch;
mod discard;
mod fail_point;
mod gate_outbox;
mod judge;
mod lives;
mod observer;
mod outbox;
mod pace;
mod position;
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
