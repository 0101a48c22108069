//! Checks of booked meters, which are usages.

use super::Calls;
use super::check_answer::{allowed, refused, remaining_calls};
use crate::operations::answers::{Checked, Reservation, Reserved};
use crate::operations::error::{Answer, OperationError};
use crate::operations::preparation::Line;
use crate::operations::requests::{Ack, CheckRequest, Mode, ReserveRequest, Work};

impl Calls {
    /// Records the work as usage, or says why not; for one that peeks, only what would happen.
    pub(super) async fn check_booked(
        &self,
        check: &CheckRequest,
        work: &Work,
        lines: &[Line],
    ) -> Answer<Checked> {
        let request = ReserveRequest {
            tenant: check.tenant.clone(),
            subjects: check.subjects.clone(),
            work: work.clone(),
            ttl: None,
            mode: Mode::AllOrNothing,
            dry_run: check.peeks,
            payload_fingerprint: None,
            metadata: None,
            key: check.key.clone(),
            happened_at_ms: None,
            sees_all_tenants: check.sees_all_tenants,
        };
        let units: Vec<_> = lines.iter().map(|line| line.units).collect();
        let checked = if check.peeks {
            self.dry_usage(request).await.map(|looked| {
                let Reserved { limits, refused_by, code, start_after_ms, degraded, decision_id, .. } = looked;
                Checked {
                    allowed: looked.allowed != Some(false),
                    remaining_calls: remaining_calls(&limits, &units),
                    retry_after_ms: looked.retry_after_ms,
                    start_after_ms,
                    decision_id,
                    replayed: false,
                    degraded,
                    limits,
                    refused_by,
                    code,
                }
            })
        } else {
            self.record_usage(request, Ack::Gate).await.map(|recorded| {
                let decision_id = recorded.decision_id();
                let Reservation { limits, degraded, replayed, record, .. } = recorded;
                let degraded = degraded || record.head.degraded;
                let start_after_ms = record.head.start_after_ms;
                Checked { degraded, replayed, start_after_ms, decision_id, ..allowed(limits, &units) }
            })
        };
        let mut checked = match checked {
            Err(OperationError::Refused(refusal)) => refused(*refusal, &units),
            decided => decided?,
        };
        checked.remaining_calls = remaining_calls(&checked.limits, &units);
        Ok(checked)
    }
}
