//! Corrections of an open period: the gate counts what finance says, at its own time and once, and no limit refuses it.

use super::Calls;
use crate::domain::adjustment::{AdjustmentId, AdjustmentTerms};
use crate::domain::ids::{IdempotencyKey, MeterId, OperationId, ReservationId, Subject, TenantId};
use crate::domain::lines::WorkLines;
use crate::domain::reservation::Correction;
use crate::operations::error::{Answer, OperationError};
use crate::operations::preparation::CORRECTION;
use crate::operations::requests::{Mode, ReserveRequest, Work};

impl Calls {
    /// The operation by which the gate corrects an open period, once for each adjustment.
    pub(in crate::operations) fn correction_of(
        &self,
        id: AdjustmentId,
        tenant: &TenantId,
    ) -> Answer<ReservationId> {
        let partition = self.core.gate.partition_of(tenant);
        Ok(self.preparation.ids.derive(partition, tenant, CORRECTION, &key(id)?))
    }

    /// Has the gate count an approved adjustment of an open period, and waits until that is booked. A repeat counts
    /// nothing again.
    ///
    /// Errors: more would be taken back than a window has; a server is away.
    pub(in crate::operations) async fn correct(
        &self,
        id: AdjustmentId,
        terms: &AdjustmentTerms,
        meter: &MeterId,
    ) -> Answer<()> {
        if self.core.ledger.reservation(self.correction_of(id, &terms.tenant)?).await?.is_some() {
            return Ok(());
        }
        let entry = self.core.policy.tenant(&terms.tenant).await?;
        let (subjects, operation) = self.corrected_work(terms).await?;
        let lines =
            WorkLines::parse(vec![(meter.clone(), terms.amount.size())]).map_err(OperationError::Invalid)?;
        let metadata = [("adjustment".to_owned(), id.to_string().into())].into_iter().collect();
        let request = ReserveRequest {
            tenant: terms.tenant.clone(),
            subjects,
            work: Work::Lines { lines, operation },
            ttl: None,
            mode: Mode::AllOrNothing,
            dry_run: false,
            payload_fingerprint: None,
            metadata: Some(metadata),
            key: Some(key(id)?),
            happened_at_ms: Some(terms.happened_at_ms),
            sees_all_tenants: false,
        };
        let prepared = self.preparation.prepare(&entry, &request, CORRECTION)?;
        if let Some(away) = self.outage.parked_first(&terms.tenant).await? {
            return Err(away.into());
        }
        let correction = if terms.amount.is_negative() { Correction::Less } else { Correction::More };
        self.record_at_gate(&entry, &request, &prepared, Some(correction)).await?;
        let last_id = self.core.gate.last_event(entry.partition).await?;
        self.core.progress.catch_up(entry.partition, last_id.unwrap_or_default()).await?;
        // Its event may have gone to the quarantine, or with the gate's memory.
        let booked = self.core.ledger.reservation(prepared.id).await?;
        booked.map(drop).ok_or(OperationError::LedgerTimeout)
    }

    /// Whose work is corrected, and by which operation it was done, where that still exists: as the reservation says
    /// that the adjustment names.
    async fn corrected_work(&self, terms: &AdjustmentTerms) -> Answer<(Vec<Subject>, Option<OperationId>)> {
        let Some(id) = terms.corrects.map(|id| ReservationId::from_bytes(id.into_bytes())) else {
            return Ok((Vec::new(), None));
        };
        let found = match self.core.ledger.reservation(id).await? {
            Some(row) => Some(row),
            None => self.core.ledger.archived_reservation(id).await?,
        };
        let of_tenant = found.filter(|row| row.tenant == terms.tenant);
        let Some(rest) = of_tenant.and_then(|row| row.record.body.rest) else {
            return Ok((Vec::new(), None));
        };
        let policy = self.core.policy.current();
        let operation = rest.operation.filter(|id| policy.operation(id).is_some_and(|found| !found.archived));
        Ok((rest.subjects.into_iter().map(|(subject, _)| subject).collect(), operation))
    }
}

fn key(id: AdjustmentId) -> Answer<IdempotencyKey> {
    IdempotencyKey::parse(&id.to_string()).map_err(|error| OperationError::Internal(error.to_string()))
}
