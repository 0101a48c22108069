//! Reading and trimming the outboxes: for the writer.

use crate::domain::ids::{OutboxId, Partition};

/// Where to read an outbox from.
pub type OutboxFrom = (Partition, OutboxId);

/// Events of one outbox as they stand: each with its place.
pub type OutboxBatch = (Partition, Vec<(OutboxId, Vec<u8>)>);
