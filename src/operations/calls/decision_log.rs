//! Log lines of decisions: one for each refusal, at most so many a second, and one for each of a sample of admissions.
//! They name limits and operations, never a subject: only a short keyed hash of it, equal in every line about it.

use std::fmt::Write;
use std::num::NonZero;

use uuid::Uuid;

use crate::domain::ids::{OperationId, Subject, TenantId};
use crate::domain::limit::Percent;
use crate::operations::answers::{RefusalCode, RefusedLimit};
use crate::operations::bounded_lines::BoundedLines;
use crate::operations::options::DecisionLogOptions;

/// How many bytes of a subject's hash a line shows.
const HASH_BYTES: usize = 4;

/// A refusal, whatever call it answers.
pub(super) struct Refused<'a> {
    pub(super) call: &'a str,
    pub(super) tenant: &'a TenantId,
    pub(super) subjects: &'a [Subject],
    pub(super) operation: Option<&'a OperationId>,
    pub(super) decision_id: Uuid,
    pub(super) code: RefusalCode,
    pub(super) retry_after_ms: Option<i64>,
    pub(super) refused_by: &'a [RefusedLimit],
}

/// Writes the lines.
pub(super) struct DecisionLog {
    /// None: no refusal is logged.
    refusals: Option<BoundedLines>,
    admitted: Percent,
    hash_key: [u8; 32],
}

impl DecisionLog {
    pub(super) fn new(options: DecisionLogOptions, secret: &[u8; 32]) -> Self {
        let per_second = NonZero::new(options.refusals_per_second);
        Self {
            refusals: per_second.map(BoundedLines::new),
            admitted: options.admitted,
            hash_key: blake3::derive_key("tollgate logged subjects v1", secret),
        }
    }

    /// Notes a refusal, unless so many were noted in this second that it is only counted.
    pub(super) fn refused(&self, refused: &Refused<'_>) {
        let Some(left_out) = self.refusals.as_ref().and_then(BoundedLines::next) else { return };
        tracing::info!(
            call = refused.call,
            tenant = %refused.tenant,
            subjects = self.hashes(refused.subjects),
            operation = refused.operation.map(OperationId::as_str),
            decision = %refused.decision_id,
            code = refused.code.as_str(),
            retry_after_ms = refused.retry_after_ms,
            refused_by = names(refused.refused_by),
            left_out,
            "refused"
        );
    }

    /// Notes an admission, if the sample has it.
    pub(super) fn admitted(
        &self,
        call: &str,
        tenant: &TenantId,
        subjects: &[Subject],
        operation: Option<&OperationId>,
    ) {
        let percent = self.admitted.get();
        if percent == 0 || rand::random_range(0..100) >= percent {
            return;
        }
        tracing::info!(
            call,
            %tenant,
            subjects = self.hashes(subjects),
            operation = operation.map(OperationId::as_str),
            "admitted"
        );
    }

    /// Each subject's kind and the beginning of its hash: `user:3fa81c09`.
    fn hashes(&self, subjects: &[Subject]) -> String {
        let mut text = String::new();
        for Subject { kind, id } in subjects {
            let hash = blake3::keyed_hash(&self.hash_key, format!("{kind} {id}").as_bytes());
            let joint = if text.is_empty() { "" } else { " " };
            // Writing into a string cannot fail.
            let _ = write!(text, "{joint}{kind}:");
            for byte in &hash.as_bytes()[..HASH_BYTES] {
                let _ = write!(text, "{byte:02x}");
            }
        }
        text
    }
}

/// The refusing limits with their causes: `day:consumed hour:reserved`.
fn names(refused_by: &[RefusedLimit]) -> String {
    let one = |refused: &RefusedLimit| format!("{}:{}", refused.limit.counter.name(), refused.cause.as_str());
    refused_by.iter().map(one).collect::<Vec<_>>().join(" ")
}
