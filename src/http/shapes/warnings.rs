//! Warnings: what is worth knowing of limits and changes nothing.

use super::{LimitAnswer, WarningAnswer};
use crate::operations::answers::LimitStatus;

/// Limits, and warnings of those that are beyond their capacity or have come near it, remember refused calls, or find
/// that calls come much sooner than usual. What they know of that has no capacity to show.
pub(in crate::http) fn limits_and_warnings(all: &[LimitStatus]) -> (Vec<LimitAnswer>, Vec<WarningAnswer>) {
    let shown: Vec<_> = all.iter().filter(|status| !status.counter.is_anomaly()).collect();
    let limits: Vec<_> = shown.iter().copied().map(LimitAnswer::from).collect();
    let mut warnings: Vec<_> =
        limits.iter().zip(shown).filter_map(|(limit, status)| warning(limit, status)).collect();
    warnings.extend(all.iter().filter_map(anomaly_warning));
    warnings.extend(conduct_warnings(all));
    (limits, warnings)
}

/// A warning that calls come much sooner than usual, or that a shadow limit would have refused them for it.
fn anomaly_warning(status: &LimitStatus) -> Option<WarningAnswer> {
    let limit = status.counter.anomaly_of()?.to_string();
    let (code, detail) = match (status.would_refuse, status.is_anomalous()) {
        (true, _) => {
            ("shadow_refused", "calls come much sooner than they used to: a hard limit would refuse this")
        }
        (false, true) => ("anomaly", "calls come much sooner than they used to"),
        (false, false) => return None,
    };
    Some(WarningAnswer { code, limit: Some(limit), detail: detail.to_owned() })
}

fn warning(limit: &LimitAnswer, status: &LimitStatus) -> Option<WarningAnswer> {
    let LimitAnswer { id, capacity, remaining, resets_at, .. } = limit;
    let left = remaining.as_deref();
    if status.would_refuse {
        return shadow_warning(limit, status);
    }
    let (code, detail) = if status.is_exceeded && status.counter.is_quota() {
        ("overage", format!("more than {capacity} are used; what is beyond is counted as overage"))
    } else if status.is_exceeded {
        ("over_limit", format!("more than {capacity} are used, which a hard limit would have refused"))
    } else if let Some(left) = left.filter(|_| status.is_near()) {
        ("near_limit", format!("{left} of {capacity} are left until {resets_at}"))
    } else {
        return None;
    };
    Some(WarningAnswer { code, limit: Some(id.clone()), detail })
}

/// A warning of a shadow limit that would have refused.
fn shadow_warning(limit: &LimitAnswer, status: &LimitStatus) -> Option<WarningAnswer> {
    let LimitAnswer { id, capacity, remaining, .. } = limit;
    let detail = match remaining {
        Some(left) => format!("{left} of {capacity} are left: a hard limit would have refused this"),
        None => "a hard limit would have refused this".to_owned(),
    };
    let warning = WarningAnswer { code: "shadow_refused", limit: Some(id.clone()), detail };
    status.would_refuse.then_some(warning)
}

/// Warnings of limits that remember refused calls of whom they count, as they are between calls.
pub(in crate::http) fn standing_warnings(all: &[LimitStatus]) -> impl Iterator<Item = WarningAnswer> {
    all.iter().filter_map(|status| {
        let punishment = status.counter.punishment()?;
        let (code, detail) = status.conduct.warning_at(punishment, status.as_of_ms)?;
        Some(WarningAnswer { code, limit: Some(status.counter.name()), detail })
    })
}

/// Warnings of limits that remember refused calls of whom they count, and ban or are about to.
pub(in crate::http) fn conduct_warnings(all: &[LimitStatus]) -> impl Iterator<Item = WarningAnswer> {
    all.iter().filter_map(|status| {
        let (code, detail) = status.conduct.warning(status.counter.punishment()?)?;
        Some(WarningAnswer { code, limit: Some(status.counter.name()), detail })
    })
}
