//! A bill while it arrives.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};

use super::{ENDS_WITHIN, find};
use crate::domain::supplier_bill::BillId;
use crate::ledger::StoredBill;
use crate::operations::answers::BillDetails;
use crate::operations::core::Core;
use crate::operations::error::{Answer, OperationError};

/// The largest file of a bill.
pub(super) const FILE_BYTES_MAX: usize = 512 * 1024 * 1024;

/// A part of a file, or that it is whole. Without the latter the file has broken off.
pub(super) enum Chunk {
    Bytes(Bytes),
    End,
}

/// Takes the bytes of a bill. Dropped before [`Self::finish`], the bill has broken off and fails.
pub struct BillUpload {
    bytes: usize,
    to: Destination,
}

enum Destination {
    /// It is read and compared.
    New {
        core: Arc<Core>,
        id: BillId,
        chunks: mpsc::Sender<Chunk>,
        is_loaded: oneshot::Receiver<Answer<()>>,
        is_ended: oneshot::Receiver<()>,
    },
    /// It has to be the same file as before.
    Repeat { stored: Box<StoredBill>, hasher: Box<blake3::Hasher> },
}

impl BillUpload {
    pub(super) fn of_new(
        core: Arc<Core>,
        id: BillId,
        chunks: mpsc::Sender<Chunk>,
        is_loaded: oneshot::Receiver<Answer<()>>,
        is_ended: oneshot::Receiver<()>,
    ) -> Self {
        Self { bytes: 0, to: Destination::New { core, id, chunks, is_loaded, is_ended } }
    }

    pub(super) fn of_repeat(stored: StoredBill) -> Self {
        let hasher = Box::new(blake3::Hasher::new());
        Self { bytes: 0, to: Destination::Repeat { stored: Box::new(stored), hasher } }
    }

    /// Takes the next bytes. Returns whether more are wanted: if not, [`Self::finish`] says why.
    ///
    /// Errors: the file is too large.
    pub async fn push(&mut self, bytes: Bytes) -> Answer<bool> {
        self.bytes = self.bytes.saturating_add(bytes.len());
        if self.bytes > FILE_BYTES_MAX {
            return Err(OperationError::TooLarge(format!("the bill is larger than {FILE_BYTES_MAX} bytes")));
        }
        match &mut self.to {
            Destination::New { chunks, .. } => Ok(chunks.send(Chunk::Bytes(bytes)).await.is_ok()),
            Destination::Repeat { hasher, .. } => {
                hasher.update(&bytes);
                Ok(true)
            }
        }
    }

    /// Ends the file. Waits until all of it is read, and for a moment until it is compared.
    ///
    /// Errors: it cannot be read, with its first bad rows; it is not the file that was sent under this key before.
    pub async fn finish(self) -> Answer<BillDetails> {
        match self.to {
            Destination::New { core, id, chunks, is_loaded, is_ended } => {
                // Without a receiver the file is refused already.
                let _ = chunks.send(Chunk::End).await;
                drop(chunks);
                is_loaded.await.map_err(|_| OperationError::Internal("a comparison broke off".into()))??;
                let _ = tokio::time::timeout(ENDS_WITHIN, is_ended).await;
                find(&core, id).await.map(|stored| BillDetails { stored, replayed: false })
            }
            Destination::Repeat { stored, hasher } => {
                if stored.body_hash.as_deref() != Some(hasher.finalize().as_bytes().as_slice()) {
                    return Err(OperationError::BillKeyReused(stored.id));
                }
                Ok(BillDetails { stored: *stored, replayed: true })
            }
        }
    }
}
