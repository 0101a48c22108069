//! How far the books lag the gate, and waiting for them: for one event, for an outbox, for all of them.

mod acknowledged;
mod catch_up;
mod positions;

use std::sync::Arc;
use std::time::Duration;

use acknowledged::Questions;
pub(super) use catch_up::silent;
pub use positions::Positions;

use crate::clock::Clock;
use crate::gate::Gate;
use crate::ledger::Ledger;
use crate::operations::options::OperationsOptions;

/// How far the ledger has booked what the gate did.
pub(super) struct BookingProgress {
    gate: Arc<Gate>,
    ledger: Ledger,
    wall_clock: Clock,
    positions: Arc<Positions>,
    questions: Questions,
    /// How long `ack: ledger` waits.
    ack_timeout: Duration,
    /// How long a call waits for the ledger to catch up.
    pub(super) restore_wait: Duration,
}

impl BookingProgress {
    /// Starts from `positions`, which the writer of this instance moves; waits are as long as `options` say.
    pub(super) fn new(
        gate: Arc<Gate>,
        ledger: Ledger,
        wall_clock: Clock,
        positions: Arc<Positions>,
        options: &OperationsOptions,
    ) -> Self {
        let OperationsOptions { ack_timeout, restore_wait, .. } = *options;
        let questions = Questions::default();
        Self { gate, ledger, wall_clock, positions, questions, ack_timeout, restore_wait }
    }
}
