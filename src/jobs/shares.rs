//! Renews this instance's shares of counters while the gate answers.

use std::sync::Arc;

use crate::beat::every;
use crate::operations::{Operations, SHARE_BEAT};

/// Renews shares until `stop` resolves, and gives them back then.
pub async fn renew_shares(operations: Arc<Operations>, stop: impl Future<Output = ()>) {
    every(SHARE_BEAT, stop, || operations.outage.renew_shares()).await;
    operations.outage.give_shares_back().await;
}
