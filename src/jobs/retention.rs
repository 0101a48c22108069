//! Retention: rows that no repeat can ask for any more leave the busy tables. Entries are never touched.

use chrono::NaiveDate;

use crate::ledger::Ledger;
use crate::operations::Answer;

const DAY_MS: i64 = 86_400_000;
const KEPT_DAYS: i64 = 90;
const NOTICES_KEPT_DAYS: i64 = 400;
const EVIDENCE_KEPT_DAYS: i64 = 400;
const DECISIONS_KEPT_MS: i64 = 7 * DAY_MS;
const VIOLATIONS_KEPT_MS: i64 = 90 * DAY_MS;
const CHUNK: usize = 1_000;
/// How much longer than the horizon a row stays: an event may name a time minutes ahead, calls wait, clocks differ.
const MARGIN_MS: i64 = 3_600_000;

/// Archives reservations resolved before the horizon, and drops old job runs, settled comparisons, repeats of past
/// epochs, batch rows that later batches prove, days of decisions, violations, quota notices, comparisons with bills,
/// damages, gaps, losses, settled events of the quarantine, ended leases and pushed loads. Each chunk is a short
/// transaction, and a step that fails does not stop the next. Returns the outcome in words.
pub(super) async fn clear(
    now_ms: i64,
    longest_late_ms: i64,
    ledger: &Ledger,
    horizon_days: u64,
) -> Answer<String> {
    let resolved_before_ms = resolved_before_ms(now_ms, horizon_days);
    // An expired reservation stays for as long as it may be consumed late.
    let expired_before_ms = resolved_before_ms.min(now_ms.saturating_sub(longest_late_ms)).max(0);
    let violations_before_ms = now_ms.saturating_sub(VIOLATIONS_KEPT_MS).max(0);
    let decisions_before_ms = now_ms.saturating_sub(DECISIONS_KEPT_MS).max(0);
    let archived = ledger.archive_reservations(resolved_before_ms, expired_before_ms, CHUNK).await;
    let steps = [
        ("reservations archived", archived),
        ("runs dropped", ledger.drop_job_runs(KEPT_DAYS, CHUNK).await),
        ("comparisons dropped", ledger.drop_reconciliations(KEPT_DAYS, CHUNK).await),
        ("repeats dropped", ledger.drop_repeats(CHUNK).await),
        ("batches thinned", ledger.thin_batches(CHUNK).await),
        ("leases dropped", ledger.drop_leases().await),
        ("pushed loads dropped", ledger.drop_pushed_loads().await),
        ("days of decisions dropped", ledger.drop_decisions(decisions_before_ms).await),
        ("minutes of violations dropped", ledger.drop_violations(violations_before_ms, CHUNK).await),
        ("quota notices dropped", ledger.drop_quota_notices(NOTICES_KEPT_DAYS, CHUNK).await),
        ("rows of bills dropped", ledger.drop_bills(KEPT_DAYS, CHUNK * 10).await),
        ("damages dropped", ledger.drop_damages(KEPT_DAYS).await),
        ("gaps dropped", ledger.drop_gaps(EVIDENCE_KEPT_DAYS, CHUNK).await),
        ("losses dropped", ledger.drop_losses(EVIDENCE_KEPT_DAYS, CHUNK).await),
        ("settled events dropped", ledger.drop_quarantine(KEPT_DAYS, CHUNK).await),
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

/// Names the months of entries that are old enough to be detached, if there are any: nothing leaves by itself.
pub(super) async fn months_that_may_leave(
    now_ms: i64,
    ledger: &Ledger,
    kept_months: u32,
) -> Answer<Option<String>> {
    Ok(named(&ledger.months_to_detach(kept_months, now_ms).await?))
}

fn named(months: &[NaiveDate]) -> Option<String> {
    let named: Vec<_> = months.iter().map(|month| month.format("%Y-%m").to_string()).collect();
    (!named.is_empty()).then(|| format!("months of entries that may be detached: {}", named.join(", ")))
}

/// Rows resolved before this instant (unix ms) can meet no repeat any more.
fn resolved_before_ms(now_ms: i64, horizon_days: u64) -> i64 {
    let horizon_ms = i64::try_from(horizon_days).unwrap_or(i64::MAX).saturating_mul(DAY_MS);
    now_ms.saturating_sub(horizon_ms).saturating_sub(MARGIN_MS).max(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn months_that_may_be_detached_are_named_if_there_are_any() {
        let months = ["2016-01-01", "2016-12-01"].map(|day| day.parse().unwrap());
        assert_eq!(named(&months).unwrap(), "months of entries that may be detached: 2016-01, 2016-12");
        assert_eq!(named(&[]), None);
    }

    #[test]
    fn a_row_stays_for_longer_than_an_event_that_named_a_time_ahead_may_be_sent_again() {
        let (taken_ms, ahead_ms) = (100 * DAY_MS, 5 * 60_000);
        let last_repeat_ms = taken_ms + ahead_ms + 35 * DAY_MS;
        assert!(resolved_before_ms(last_repeat_ms, 35) <= taken_ms);
        assert!(resolved_before_ms(last_repeat_ms + MARGIN_MS, 35) > taken_ms);
        assert_eq!(resolved_before_ms(DAY_MS, u64::MAX), 0);
    }
}
