//! What the calls tell of a decision, and what is kept of that.

use std::fmt::Write;
use std::sync::Arc;

use uuid::Uuid;

use crate::domain::amount::Units;
use crate::domain::counter::need;
use crate::domain::decision::{
    DecidedCall, DecidedLimit, DecidedLine, DecidedReservation, DecidedSubject, Decision,
};
use crate::domain::ids::{OperationId, Subject, TenantId};
use crate::gate::Gate;
use crate::operations::answers::{AskedLine, RefusalCode, RefusedLimit};
use crate::operations::limit_status::LimitStatus;

/// How many bytes of a subject's hash are kept.
const HASH_BYTES: usize = 16;

/// A decision as a call tells it.
pub(in crate::operations) struct Decided<'a> {
    pub(in crate::operations) id: Uuid,
    pub(in crate::operations) call: DecidedCall,
    pub(in crate::operations) tenant: &'a TenantId,
    pub(in crate::operations) subjects: &'a [Subject],
    pub(in crate::operations) operation: Option<&'a OperationId>,
    pub(in crate::operations) lines: Vec<AskedLine>,
    pub(in crate::operations) limits: &'a [LimitStatus],
    pub(in crate::operations) refused_by: &'a [RefusedLimit],
    pub(in crate::operations) is_admitted: bool,
    /// Why it was refused.
    pub(in crate::operations) code: Option<RefusalCode>,
    pub(in crate::operations) is_dry_run: bool,
    pub(in crate::operations) is_degraded: bool,
    pub(in crate::operations) policy_version: u64,
    /// The units granted, where less than what was asked for would do.
    pub(in crate::operations) granted: Option<Vec<Units>>,
    /// The reservation that it made or changed.
    pub(in crate::operations) reservation: Option<DecidedReservation>,
    /// When the gate decided, or the work was done; none: just now (unix ms).
    pub(in crate::operations) at_ms: Option<i64>,
}

/// Names subjects in what is kept of decisions.
pub(super) struct SubjectNames {
    gate: Arc<Gate>,
    key: [u8; 32],
}

impl SubjectNames {
    pub(super) fn new(gate: Arc<Gate>, secret: &[u8; 32]) -> Self {
        Self { gate, key: blake3::derive_key("tollgate decided subjects v1", secret) }
    }

    /// A keyed hash of tenant, kind and id. Subjects that share a slot of counters share it.
    pub(super) fn name(&self, tenant: &TenantId, subject: &Subject) -> DecidedSubject {
        let slot = subject.kind.shares_slots().then(|| self.gate.subject_hash(tenant, subject));
        let id = slot.as_ref().map_or(subject.id.as_str().as_bytes(), |slot| &slot.0);
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        for part in [tenant.as_str().as_bytes(), subject.kind.as_str().as_bytes(), id] {
            hasher.update(part);
            hasher.update(&[0]);
        }
        let mut hash = String::with_capacity(2 * HASH_BYTES);
        for byte in &hasher.finalize().as_bytes()[..HASH_BYTES] {
            // Writing into a string cannot fail.
            let _ = write!(hash, "{byte:02x}");
        }
        DecidedSubject { kind: subject.kind.to_string(), hash }
    }
}

impl Decided<'_> {
    /// What is kept of it: no subject, only a hash of each.
    pub(super) fn decision(self, now_ms: i64, number: u64, names: &SubjectNames) -> Decision {
        let units: Vec<_> = self.lines.iter().map(|line| line.units).collect();
        let granted = self.granted.as_deref();
        let line = |(at, line): (usize, &AskedLine)| DecidedLine {
            meter: line.meter.clone(),
            amount: line.units.to_amount(line.decimals),
            granted: granted.and_then(|granted| granted.get(at)).map(|units| units.to_amount(line.decimals)),
        };
        Decision {
            id: self.id,
            at_ms: self.at_ms.unwrap_or(now_ms),
            tenant: self.tenant.clone(),
            call: self.call,
            operation: self.operation.cloned(),
            is_admitted: self.is_admitted,
            code: self.code.map(|code| code.as_str().to_owned()),
            is_dry_run: self.is_dry_run,
            is_degraded: self.is_degraded,
            policy_version: self.policy_version,
            subjects: self.subjects.iter().map(|subject| names.name(self.tenant, subject)).collect(),
            limits: self.limits.iter().map(|limit| self.limit(limit, &units)).collect(),
            lines: self.lines.iter().enumerate().map(line).collect(),
            number,
            reservation: self.reservation,
        }
    }

    fn limit(&self, status: &LimitStatus, units: &[Units]) -> DecidedLimit {
        let counter = &status.counter;
        let write = |units: Units| units.to_amount(counter.decimals);
        let is_this = |refused: &&RefusedLimit| {
            let other = &refused.limit;
            other.counter.field == counter.field && other.counter.scope_index == counter.scope_index
        };
        let refused = self.refused_by.iter().find(is_this);
        let needed = counter.parameters.need(need(&counter.lines, units), false);
        DecidedLimit {
            id: counter.name(),
            level: counter.level(),
            meter: counter.meter.clone(),
            subject_kind: status.subject.as_ref().map(|subject| subject.kind.to_string()),
            kind: counter.kind,
            algorithm: counter.algorithm().to_owned(),
            capacity: write(status.capacity),
            consumed: (!counter.is_global()).then(|| write(status.consumed)),
            reserved: (!counter.is_global()).then(|| write(status.reserved)),
            need: write(Units::new(needed).unwrap_or_default()),
            refused: refused.is_some(),
            cause: refused.map(|refused| refused.cause.as_str().to_owned()),
            wait_ms: refused.and_then(|refused| refused.retry_after_ms),
        }
    }
}
