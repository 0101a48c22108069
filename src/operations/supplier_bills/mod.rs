//! The comparison of the books with suppliers' bills: a bill is read while it arrives, and compared in a task of its
//! own.

mod upload;
mod work;

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{Semaphore, mpsc, oneshot};

pub use upload::BillUpload;

use crate::domain::ids::{MeterId, TenantId};
use crate::domain::instant::rfc3339;
use crate::domain::supplier_bill::{BillId, BillState, Finding, Outcome};
use crate::ledger::{BillBegun, BillCursor, MatchCursor, NewBill, StoredBill};
use crate::operations::answers::{BillDetails, Rows};
use crate::operations::core::Core;
use crate::operations::error::{Answer, OperationError};
use crate::operations::requests::{BillRequest, FindingsRequest, Page};
use work::Work;

/// How many comparisons one instance works on at once: each has a connection and temporary tables of its own.
const RUNNING_MAX: usize = 2;

/// How many chunks of a file wait for the thread that reads it.
const CHUNKS_MAX: usize = 16;

/// How long the answer to a bill waits for the end of the comparison.
const ENDS_WITHIN: Duration = Duration::from_secs(2);

/// How many findings of an export are read, and in memory, at once.
const EXPORTED_AT_ONCE: usize = 1_000;

/// Compares suppliers' bills with the books.
pub struct SupplierBills {
    core: Arc<Core>,
    running: Arc<Semaphore>,
    /// Comparisons outlive the calls that begin them.
    runtime: Handle,
}

impl SupplierBills {
    /// Must be called within the runtime that outlives the servers.
    pub(super) fn new(core: Arc<Core>) -> Self {
        Self { core, running: Arc::new(Semaphore::new(RUNNING_MAX)), runtime: Handle::current() }
    }

    /// Begins a comparison, once under its key, and takes the bill. A bill that failed begins again.
    ///
    /// Errors: an unknown tenant or meter; another comparison under this key; [`OperationError::Overloaded`]; the gate
    /// is away, so that nobody knows whether all is booked.
    pub async fn receive(&self, request: BillRequest, actor: &str) -> Answer<BillUpload> {
        let BillRequest { key, terms } = request;
        let (id, fingerprint) = (BillId::of(&key), terms.fingerprint());
        // A repeat has its first answer, whatever has become of its meter, its tenant or its month since.
        if let Some(stored) = self.core.ledger.bill(id).await?
            && stored.state != BillState::Failed
        {
            return repeated(stored, fingerprint);
        }
        self.check(&terms.meter, terms.tenant.as_ref()).await?;
        let held_from_ms = self.core.ledger.held_from_ms().await?;
        if let Some(held_ms) = held_from_ms.filter(|held_ms| terms.looked_at_from_ms() < *held_ms) {
            let message =
                format!("must be {} or later: entries before that are in archives", rfc3339(held_ms));
            return Err(OperationError::field("/from", message));
        }
        // Found out after the bill was sent, it would have been sent for nothing.
        self.core.progress.look_at_all().await.map_err(not_all_is_booked)?;
        let running = self.running.clone().try_acquire_owned().map_err(|_| OperationError::Overloaded)?;
        let new = NewBill { id, terms: terms.clone(), created_by: actor.to_owned() };
        let attempt = match self.core.ledger.begin_bill(new).await? {
            BillBegun::Now(attempt) => attempt,
            BillBegun::Before(stored) => return repeated(*stored, fingerprint),
        };
        let (chunks, received) = mpsc::channel(CHUNKS_MAX);
        let ((loaded, is_loaded), (ended, is_ended)) = (oneshot::channel(), oneshot::channel());
        let work = Work { core: self.core.clone(), id, attempt, terms };
        self.runtime.spawn(async move {
            work.run(received, loaded).await;
            drop(running);
            // The caller may have gone.
            let _ = ended.send(());
        });
        Ok(BillUpload::of_new(self.core.clone(), id, chunks, is_loaded, is_ended))
    }

    async fn check(&self, meter: &MeterId, tenant: Option<&TenantId>) -> Answer<()> {
        if !self.core.policy.current().definitions().meters.contains_key(meter) {
            return Err(OperationError::field("/meter", format!("there is no meter {meter}")));
        }
        if let Some(tenant) = tenant
            && self.core.policy.find_tenant(tenant).await?.is_none()
        {
            return Err(OperationError::field("/tenant", format!("there is no tenant {tenant}")));
        }
        Ok(())
    }

    /// The comparison with this id.
    pub async fn get(&self, id: BillId) -> Answer<BillDetails> {
        find(&self.core, id).await.map(|stored| BillDetails { stored, replayed: false })
    }

    /// Comparisons, newest first.
    pub async fn list(&self, page: Page) -> Answer<Rows<BillDetails>> {
        let limit = page.rows_max();
        let after = page.after.as_deref().map(place).transpose()?;
        let rows = self.core.ledger.bills(after, limit + 1).await?;
        let rows = Rows::page(rows, limit, |row| format!("{}:{}", row.created_at_us, row.id));
        Ok(rows.map(|stored| BillDetails { stored, replayed: false }))
    }

    /// A page of what a comparison found, by outcome.
    ///
    /// Errors: it has not ended; it failed.
    pub async fn list_findings(&self, request: FindingsRequest) -> Answer<Rows<Finding>> {
        let FindingsRequest { id, outcome, page } = request;
        has_findings(&find(&self.core, id).await?)?;
        let limit = page.rows_max();
        let after = page.after.as_deref().map(finding_place).transpose()?;
        let rows = self.core.ledger.bill_findings(id, outcome, after, limit + 1).await?;
        let rows =
            Rows::page(rows, limit, |(number, finding)| format!("{}:{number}", finding.outcome.as_str()));
        Ok(rows.map(|(_, finding)| finding))
    }

    /// Begins to read all findings, whatever page was asked for.
    ///
    /// Errors: it has not ended; it failed.
    pub async fn export_findings(&self, request: FindingsRequest) -> Answer<FindingsExport> {
        let FindingsRequest { id, outcome, page: _ } = request;
        has_findings(&find(&self.core, id).await?)?;
        Ok(FindingsExport { core: self.core.clone(), id, outcome, after: None, has_ended: false })
    }
}

/// All findings of a comparison.
pub struct FindingsExport {
    core: Arc<Core>,
    id: BillId,
    outcome: Option<Outcome>,
    after: Option<MatchCursor>,
    has_ended: bool,
}

impl FindingsExport {
    /// The next findings; none at the end.
    pub async fn next(&mut self) -> Answer<Vec<Finding>> {
        if self.has_ended {
            return Ok(Vec::new());
        }
        let ledger = &self.core.ledger;
        let found = ledger.bill_findings(self.id, self.outcome, self.after, EXPORTED_AT_ONCE).await?;
        self.has_ended = found.len() < EXPORTED_AT_ONCE;
        self.after = found.last().map(|(number, finding)| (finding.outcome, *number));
        Ok(found.into_iter().map(|(_, finding)| finding).collect())
    }
}

/// What becomes of a bill under the key of one that has not failed. `fingerprint` is that of its terms.
fn repeated(stored: StoredBill, fingerprint: [u8; 32]) -> Answer<BillUpload> {
    let id = stored.id;
    if stored.fingerprint != fingerprint {
        return Err(OperationError::BillKeyReused(id));
    }
    if stored.body_hash.is_none() {
        return Err(OperationError::InUse(format!("the bill of reconciliation {id} is still being sent")));
    }
    Ok(BillUpload::of_repeat(stored))
}

/// The error for a bill that is not compared because some of the use may not be booked.
fn not_all_is_booked(error: OperationError) -> OperationError {
    OperationError::LedgerUnavailable(format!("not all is booked yet: {error}"))
}

async fn find(core: &Core, id: BillId) -> Answer<StoredBill> {
    let found = core.ledger.bill(id).await?;
    found.ok_or_else(|| OperationError::NotFound("there is no such reconciliation".into()))
}

/// Whether a comparison has come to its findings: none of them would look like no difference.
fn has_findings(stored: &StoredBill) -> Answer<()> {
    match stored.state {
        BillState::Done => Ok(()),
        BillState::Loading | BillState::Matching => {
            let message = format!("reconciliation {} has no results yet: it is not `done`", stored.id);
            Err(OperationError::InUse(message))
        }
        BillState::Failed => {
            let why = stored.failure.as_deref().unwrap_or("the bill was not compared");
            let message = format!("reconciliation {} has failed, and has no results: {why}", stored.id);
            Err(OperationError::NotFound(message))
        }
    }
}

fn place(text: &str) -> Answer<BillCursor> {
    let (at, id) = text.split_once(':').ok_or_else(OperationError::bad_cursor)?;
    let at_us = at.parse().map_err(|_| OperationError::bad_cursor())?;
    Ok((at_us, id.parse().map_err(|_| OperationError::bad_cursor())?))
}

fn finding_place(text: &str) -> Answer<MatchCursor> {
    let (word, number) = text.split_once(':').ok_or_else(OperationError::bad_cursor)?;
    let outcome = Outcome::from_word(word).ok_or_else(OperationError::bad_cursor)?;
    Ok((outcome, number.parse().map_err(|_| OperationError::bad_cursor())?))
}
