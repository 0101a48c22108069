//! Retention: what nobody has to be recognised by any more leaves the tables that are asked all day. Never the books.

use crate::ledger::Ledger;
use crate::operations::Answer;

const DAY_MS: i64 = 86_400_000;
const KEPT_DAYS: i64 = 90;
const CHUNK: usize = 1_000;

/// Archives reservations resolved longer ago than the horizon, and drops old runs of jobs, settled comparisons, repeats of
/// past epochs, rows of batches that later ones prove, damages and leases that ended; chunk by chunk, each a short transaction. A step that fails holds up no other. Answers what it came to, in words.
pub(super) async fn clear(
    now_ms: i64,
    longest_late_ms: i64,
    ledger: &Ledger,
    horizon_days: u64,
) -> Answer<String> {
    let horizon_ms = i64::try_from(horizon_days).unwrap_or(i64::MAX).saturating_mul(DAY_MS);
    let resolved_before_ms = now_ms.saturating_sub(horizon_ms).max(0);
    // What expired stays for as long as it may be consumed late.
    let expired_before_ms = resolved_before_ms.min(now_ms.saturating_sub(longest_late_ms)).max(0);
    let archived = ledger.archive_reservations(resolved_before_ms, expired_before_ms, CHUNK).await;
    let steps = [
        ("reservations archived", archived),
        ("runs dropped", ledger.drop_job_runs(KEPT_DAYS, CHUNK).await),
        ("comparisons dropped", ledger.drop_reconciliations(KEPT_DAYS, CHUNK).await),
        ("repeats dropped", ledger.drop_repeats(CHUNK).await),
        ("batches thinned", ledger.thin_batches(CHUNK).await),
        ("leases dropped", ledger.drop_leases().await),
        ("damages dropped", ledger.drop_damages(KEPT_DAYS).await),
    ];
    let (mut outcome, mut failure) = (Vec::new(), None);
    for (step, result) in steps {
        match result {
            Ok(count) => outcome.push(format!("{step}: {count}")),
            Err(error) => {
                tracing::warn!(step, %error, "a step of retention failed");
                failure.get_or_insert(error);
            }
        }
    }
    failure.map_or_else(|| Ok(outcome.join(", ")), |error| Err(error.into()))
}
