//! One lease as its owner sees it: taken, renewed until it is lost, given back.

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
    /// Nothing is taken yet.
    #[must_use]
    pub fn new(ledger: Ledger, name: &str, owner: String, duration: Duration) -> Self {
        Self { ledger, names: [name.to_owned()], owner, duration }
    }

    /// Takes or renews it: whether it is the owner's for its duration from now.
    ///
    /// # Errors
    /// The ledger does not answer.
    pub async fn take(&self) -> Result<bool, LedgerError> {
        Ok(!self.ledger.take_leases(&self.names, &self.owner, self.duration).await?.is_empty())
    }

    /// Renews a lease that is held; resolves when it may be another's.
    pub async fn lost(&self) {
        lost(self.duration, || self.take()).await;
    }

    /// Gives it back, so that the next owner need not wait for its end.
    pub async fn give_back(&self) {
        if let Err(error) = self.ledger.give_back_leases(&self.owner).await {
            tracing::debug!(%error, lease = self.names[0], "was not given back; it ends by itself");
        }
    }
}

/// Renews what is held for `duration` with every third of it; resolves when it may be another's.
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
