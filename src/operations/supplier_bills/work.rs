//! One comparison, from the first byte of the file to its end.

use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::{Buf, Bytes};
use tokio::sync::{mpsc, oneshot};

use super::not_all_is_booked;
use super::upload::Chunk;
use crate::domain::field_error::child;
use crate::domain::supplier_bill::reading::{BillFault, BillReader, BillRow, ROWS_MAX};
use crate::domain::supplier_bill::{BillId, BillTerms};
use crate::ledger::{BillSession, LedgerError};
use crate::operations::core::Core;
use crate::operations::error::{Answer, FieldError, OperationError};

/// How many rows go to the ledger at once.
const ROWS_AT_ONCE: usize = 1_000;

/// How many of those wait.
const BATCHES_MAX: usize = 4;

/// How many bad rows are named before the bill is given up.
const FAULTS_MAX: usize = 20;

/// How often the ledger hears that the work goes on.
const BEAT: Duration = Duration::from_secs(10);

/// The longest that one bill is worked on.
const WORK_MAX: Duration = Duration::from_secs(60 * 60);

// A file that arrives slowly is cut off by this limit, which is documented, and not by that of a statement.
const _: () = assert!(WORK_MAX.as_secs() < BillSession::STATEMENT_MAX.as_secs());

/// How long to wait until everything that the gate has admitted is booked.
const BOOKS_WITHIN: Duration = Duration::from_secs(10);

/// One attempt at one comparison.
pub(super) struct Work {
    pub(super) core: Arc<Core>,
    pub(super) id: BillId,
    pub(super) attempt: i32,
    pub(super) terms: BillTerms,
}

impl Work {
    /// Reads the file, reports that on `loaded`, and compares it. What fails is stored with the comparison.
    pub(super) async fn run(self, chunks: mpsc::Receiver<Chunk>, loaded: oneshot::Sender<Answer<()>>) {
        let read = Arc::new(AtomicU64::new(0));
        let mut loaded = Some(loaded);
        let work = tokio::time::timeout(WORK_MAX, self.work(chunks, &mut loaded, read.clone()));
        let done = tokio::select! {
            done = work => done.unwrap_or_else(|_| Err(OperationError::Internal("it took too long".into()))),
            never = self.beat(&read) => match never {},
        };
        let Err(error) = done else { return };
        tracing::warn!(reconciliation = %self.id, %error, "a bill could not be compared");
        if let Err(error) = self.core.ledger.fail_bill(self.id, self.attempt, failure(&error)).await {
            tracing::warn!(reconciliation = %self.id, %error, "that a bill failed is not noted");
        }
        if let Some(loaded) = loaded {
            // The caller may have gone.
            let _ = loaded.send(Err(error));
        }
    }

    /// How long a use of the meter goes on at most: one is counted whole where it ended.
    fn use_lasts(&self) -> Duration {
        let definitions = self.core.policy.current();
        let seconds = definitions
            .definitions()
            .meters
            .get(&self.terms.meter)
            .map_or(0, |meter| u64::from(meter.max_life_seconds) + u64::from(meter.late_within_seconds));
        Duration::from_secs(seconds)
    }

    async fn beat(&self, read: &AtomicU64) -> std::convert::Infallible {
        loop {
            tokio::time::sleep(BEAT).await;
            let count = read.load(Ordering::Relaxed);
            if let Err(error) = self.core.ledger.renew_bill(self.id, self.attempt, count).await {
                tracing::warn!(reconciliation = %self.id, %error, "the ledger did not hear that a bill is worked on");
            }
        }
    }

    async fn work(
        &self,
        chunks: mpsc::Receiver<Chunk>,
        loaded: &mut Option<oneshot::Sender<Answer<()>>>,
        read: Arc<AtomicU64>,
    ) -> Answer<()> {
        let mut session = self.core.ledger.bill_session().await?;
        let (count, hash) = self.load(&session, chunks, read).await?;
        if !self.core.ledger.bill_loaded(self.id, self.attempt, count, hash).await? {
            return Err(overtaken());
        }
        if let Some(loaded) = loaded.take() {
            // The caller may have gone.
            let _ = loaded.send(Ok(()));
        }
        self.core.progress.catch_up_all(BOOKS_WITHIN).await.map_err(not_all_is_booked)?;
        match session.compare(self.id, self.attempt, &self.terms, self.use_lasts()).await {
            Ok(true) => Ok(()),
            Ok(false) => Err(overtaken()),
            Err(LedgerError::Refused(why)) => Err(OperationError::Malformed(why)),
            Err(error) => Err(error.into()),
        }
    }

    /// Reads the file in a thread of its own, and sends its rows to the ledger. Returns how many there are, and the
    /// hash of the file.
    async fn load(
        &self,
        session: &BillSession,
        chunks: mpsc::Receiver<Chunk>,
        read: Arc<AtomicU64>,
    ) -> Answer<(u64, [u8; 32])> {
        let (rows, mut received) = mpsc::channel(BATCHES_MAX);
        let terms = self.terms.clone();
        let reading = tokio::task::spawn_blocking(move || read_file(chunks, &terms, &rows, &read));
        let stored = session.load(&mut received).await;
        // A reader that waits to hand over rows ends now.
        drop(received);
        let read = reading.await.map_err(|error| OperationError::Internal(error.to_string()))?;
        stored?;
        read.map_err(refusal)
    }
}

fn overtaken() -> OperationError {
    OperationError::InUse("the bill has been sent again meanwhile".into())
}

/// What is stored of an error: what the service alone can mend is in the log. Postgres stores no zero byte.
fn failure(error: &OperationError) -> String {
    let text: String = match error {
        OperationError::Internal(_) => "the service failed; the fault has been logged".into(),
        OperationError::Invalid(errors) => errors.first().map_or_else(String::new, ToString::to_string),
        other => other.to_string(),
    };
    text.replace('\0', "\u{fffd}")
}

/// The file as a thread reads it.
struct ChunkReader {
    chunks: mpsc::Receiver<Chunk>,
    current: Bytes,
    has_ended: bool,
    hasher: blake3::Hasher,
}

impl Read for ChunkReader {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        while self.current.is_empty() && !self.has_ended {
            match self.chunks.blocking_recv() {
                Some(Chunk::Bytes(bytes)) => {
                    self.hasher.update(&bytes);
                    self.current = bytes;
                }
                Some(Chunk::End) => self.has_ended = true,
                None => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            }
        }
        let count = self.current.len().min(into.len());
        self.current.copy_to_slice(&mut into[..count]);
        Ok(count)
    }
}

/// Reads all rows, or the first faults. Returns how many rows there are, and the hash of the file.
fn read_file(
    chunks: mpsc::Receiver<Chunk>,
    terms: &BillTerms,
    rows: &mpsc::Sender<Vec<BillRow>>,
    read: &AtomicU64,
) -> Result<(u64, [u8; 32]), Vec<BillFault>> {
    let mut file =
        ChunkReader { chunks, current: Bytes::new(), has_ended: false, hasher: blake3::Hasher::new() };
    let mut reader = BillReader::new(&mut file, terms).map_err(|fault| vec![fault])?;
    let (mut faults, mut batch) = (Vec::new(), Vec::with_capacity(ROWS_AT_ONCE));
    loop {
        let next = reader.next_row();
        read.store(reader.count(), Ordering::Relaxed);
        let is_last = matches!(next, Ok(None));
        match next {
            Ok(Some(row)) => batch.push(row),
            Ok(None) => {}
            Err(fault) => {
                let goes_on = fault.is_of_one_row();
                faults.push(fault);
                if !goes_on || faults.len() >= FAULTS_MAX {
                    return Err(faults);
                }
            }
        }
        if (is_last || batch.len() >= ROWS_AT_ONCE) && faults.is_empty() {
            let full = std::mem::replace(&mut batch, Vec::with_capacity(ROWS_AT_ONCE));
            // The ledger's own error is the one that counts.
            rows.blocking_send(full).map_err(|_| vec![BillFault::BrokenOff])?;
        }
        if !faults.is_empty() {
            batch.clear();
        }
        if is_last {
            break;
        }
    }
    let count = reader.count();
    drop(reader);
    if faults.is_empty() { Ok((count, file.hasher.finalize().into())) } else { Err(faults) }
}

/// What a caller is to know of faults.
fn refusal(faults: Vec<BillFault>) -> OperationError {
    let mut errors = Vec::new();
    for fault in faults {
        match fault {
            BillFault::Column(parameter, why) => errors.push(FieldError::new(format!("/{parameter}"), why)),
            BillFault::Cell(line, column, why) => {
                errors.push(FieldError::new(child(&format!("/rows/{line}"), &column), why));
            }
            BillFault::Row(line, why) | BillFault::Unreadable(line, why) => {
                errors.push(FieldError::new(format!("/rows/{line}"), why));
            }
            BillFault::TooManyRows => {
                return OperationError::TooLarge(format!("the bill has more than {ROWS_MAX} rows"));
            }
            BillFault::BrokenOff if errors.is_empty() => {
                return OperationError::Malformed("the bill broke off before its end".into());
            }
            BillFault::BrokenOff => {}
        }
    }
    OperationError::Invalid(errors)
}
