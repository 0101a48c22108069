//! Log lines of decisions: one for each refusal, at most so many a second, and one for each of a sample of admissions.
//! They name limits and operations, never a subject: only a short keyed hash of it, equal in every line about it.

use std::fmt::Write;
use std::num::NonZero;
use std::sync::atomic::{AtomicU64, Ordering};

use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};

use crate::domain::ids::Subject;
use crate::domain::limit::Percent;
use crate::operations::answers::{Refusal, RefusedLimit};
use crate::operations::options::DecisionLogOptions;
use crate::operations::requests::{ReserveRequest, Work};

/// How many bytes of a subject's hash a line shows.
const HASH_BYTES: usize = 4;

/// Writes the lines.
pub(super) struct DecisionLog {
    /// None: no refusal is logged.
    refusals: Option<DefaultDirectRateLimiter>,
    /// Refusals since the last line that were left out.
    left_out: AtomicU64,
    admitted: Percent,
    hash_key: [u8; 32],
}

impl DecisionLog {
    pub(super) fn new(options: DecisionLogOptions, secret: &[u8; 32]) -> Self {
        let per_second = NonZero::new(options.refusals_per_second);
        Self {
            refusals: per_second.map(|lines| RateLimiter::direct(Quota::per_second(lines))),
            left_out: AtomicU64::new(0),
            admitted: options.admitted,
            hash_key: blake3::derive_key("tollgate logged subjects v1", secret),
        }
    }

    /// Notes a refusal, unless so many were noted in this second that it is only counted.
    pub(super) fn refused(&self, call: &str, request: &ReserveRequest, refusal: &Refusal) {
        let Some(limiter) = &self.refusals else { return };
        if limiter.check().is_err() {
            self.left_out.fetch_add(1, Ordering::Relaxed);
            return;
        }
        tracing::info!(
            call,
            tenant = %request.tenant,
            subjects = self.hashes(&request.subjects),
            operation = operation(request),
            decision = %refusal.decision_id,
            code = refusal.code.as_str(),
            retry_after_ms = refusal.retry_after_ms,
            refused_by = names(&refusal.refused_by),
            left_out = self.left_out.swap(0, Ordering::Relaxed),
            "refused"
        );
    }

    /// Notes an admission, if the sample has it.
    pub(super) fn admitted(&self, call: &str, request: &ReserveRequest) {
        let percent = self.admitted.get();
        if percent == 0 || rand::random_range(0..100) >= percent {
            return;
        }
        tracing::info!(
            call,
            tenant = %request.tenant,
            subjects = self.hashes(&request.subjects),
            operation = operation(request),
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

fn operation(request: &ReserveRequest) -> Option<&str> {
    match &request.work {
        Work::Operation { operation, .. } => Some(operation.as_str()),
        Work::Lines { operation, .. } => operation.as_ref().map(|operation| operation.as_str()),
    }
}

/// The refusing limits with their causes: `day:consumed hour:reserved`.
fn names(refused_by: &[RefusedLimit]) -> String {
    let one = |refused: &RefusedLimit| format!("{}:{}", refused.limit.counter.name(), refused.cause.as_str());
    refused_by.iter().map(one).collect::<Vec<_>>().join(" ")
}
