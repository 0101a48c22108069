//! Retention: rows that no repeat can ask for any more leave the busy tables. Entries are never touched.

use crate::ledger::Ledger;
use crate::operations::Answer;

const DAY_MS: i64 = 86_400_000;
const KEPT_DAYS: i64 = 90;
const CHUNK: usize = 1_000;

/// Archives reservations resolved before the horizon, and drops old job runs, settled comparisons, repeats of past
/// epochs, batch rows that later batches prove, damages and ended leases. Each chunk is a short transaction, and a step
/// that fails does not stop the next. Returns the outcome in words.
pub(super) async fn clear(
    now_ms: i64,
    longest_late_ms: i64,
    ledger: &Ledger,
    horizon_days: u64,
) -> Answer<String> {
    let horizon_ms = i64::try_from(horizon_days).unwrap_or(i64::MAX).saturating_mul(DAY_MS);
    let resolved_before_ms = now_ms.saturating_sub(horizon_ms).max(0);
    // An expired reservation stays for as long as it may be consumed late.
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
