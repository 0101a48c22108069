//! Engine 1, Redis: holds amounts, counts them, and says what happened. Knows only the domain.
//!
//! One script is one transition (`lua/`); one method calls one script. Every mutating call carries the expected epoch
//! and the instant at which the caller stops waiting.

mod engine;
pub mod error;
pub mod expire;
pub mod outbox;
pub mod peek;
pub mod reserve;
pub mod resolve;
pub mod restore;
pub mod status;

use std::time::Duration;

use crate::domain::ids::{Epoch, OutboxId};

pub use engine::Gate;
pub use error::GateError;
pub use expire::ExpireReport;
pub use outbox::OutboxBatch;
pub use peek::{PeekCall, PeekedCounters, PeekedRecord};
pub use reserve::{
    CheckCapacity, Cold, CounterCheck, CounterClass, CounterReading, ReserveCall, ReserveMode, ReserveOutcome,
};
pub use resolve::{ColdRecord, ConsumeCall, ExtendCall, ReleaseCall, ResolveOutcome, Totals};
pub use restore::{Holder, QuotaCapacity, RestoreOutcome, RestorePage, RestoredCounter, WarmState};
pub use status::Status;

/// How to reach the gate and how it keeps time.
#[derive(Debug, Clone)]
pub struct GateOptions {
    /// `redis://host:port` or `unix:///path/to/socket`.
    pub url: String,
    /// How many multiplexed connections calls are spread over; at least 1.
    pub connections: usize,
    /// How long a call waits for its answer; also how late a script may still run.
    pub response_timeout: Duration,
    /// How long connecting may take.
    pub connect_timeout: Duration,
    /// The installation's number of partitions, 1 to 256; fixed at installation.
    pub partitions: u16,
    /// The width of a due bucket, in ms; fixed at installation.
    pub due_bucket_ms: i64,
    /// How long a resolved reservation with an idempotency key is remembered, in ms.
    pub tombstone_keyed_ms: i64,
    /// How long one without is remembered, in ms.
    pub tombstone_unkeyed_ms: i64,
    /// Take a server that may lose or evict data.
    pub allow_unsafe: bool,
    /// The installation's secret; subject hashes derive from it.
    pub secret: [u8; 32],
}

/// What a partition's memory says about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionFacts {
    /// The epoch it was adopted under; none when its memory is missing.
    pub epoch: Option<Epoch>,
    /// The outbox's last id; none when the outbox is missing.
    pub last_id: Option<OutboxId>,
    /// The last due bucket finished.
    pub swept: Option<i64>,
}
