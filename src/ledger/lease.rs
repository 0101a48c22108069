//! A lease as its owner uses it: taken, renewed until it is lost, given back.

use std::time::Duration;

use tokio::time::Instant;

use super::{Ledger, LedgerError};

/// A lease of this name, which `owner` takes and renews for `duration` at a time.
#[derive(Clone)]
pub struct Lease {
    ledger: Ledger,
    names: [String; 1],
    owner: String,
    duration: Duration,
}

impl Lease {
    /// Makes the lease without taking it.
    #[must_use]
    pub fn new(ledger: Ledger, name: &str, owner: String, duration: Duration) -> Self {
        Self { ledger, names: [name.to_owned()], owner, duration }
    }

    /// Takes or renews the lease. Returns whether the owner holds it for its duration from now.
    ///
    /// # Errors
    /// The ledger does not answer.
    pub async fn take(&self) -> Result<bool, LedgerError> {
        Ok(!self.ledger.take_leases(&self.names, &self.owner, self.duration).await?.is_empty())
    }

    /// Renews a lease that is held. Returns when another owner may hold it.
    pub async fn lost(&self) {
        lost(self.duration, || self.take()).await;
    }

    /// Gives the lease back, so that the next owner need not wait until it ends.
    pub async fn give_back(&self) {
        if let Err(error) = self.ledger.give_back_leases(&self.owner).await {
            tracing::debug!(%error, lease = self.names[0], "was not given back; it ends by itself");
        }
    }
}

/// Renews a held lease three times in each `duration`. Returns when another owner may hold it.
pub async fn lost<R: Future<Output = Result<bool, LedgerError>>>(
    duration: Duration,
    mut renew: impl FnMut() -> R,
) {
    let mut held_at = Instant::now();
    while held_at.elapsed() < duration {
        tokio::time::sleep(duration / 3).await;
        let asked_at = Instant::now();
        match renew().await {
            Ok(true) => held_at = asked_at,
            Ok(false) => return,
            Err(error) => tracing::debug!(%error, "a lease could not be renewed yet"),
        }
    }
}
