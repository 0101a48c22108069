//! The installation's own row: fixed when it is made, checked at every start.

use super::{Ledger, LedgerError};

impl Ledger {
    /// Makes the installation's rows once: its number of partitions (1 to 256), a fingerprint of its secret, an epoch
    /// row (0: none issued yet) and a cursor for each partition.
    ///
    /// Errors: [`LedgerError::Refused`] when the ledger was installed with other partitions or another secret.
    pub async fn install(&self, partitions: u16, secret_fingerprint: [u8; 32]) -> Result<(), LedgerError> {
        pending()
    }

    /// The installation's number of partitions.
    pub async fn partitions(&self) -> Result<u16, LedgerError> {
        pending()
    }
}

fn pending<T>() -> Result<T, LedgerError> {
    Err(LedgerError::Unavailable("not written yet".into()))
}
