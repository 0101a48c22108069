//! Warnings of limits: near, beyond, or refusing in shadow.

use super::{LimitAnswer, WarningAnswer};
use crate::operations::answers::LimitStatus;

/// What the limit warns of, if anything.
pub(super) fn warning(limit: &LimitAnswer, status: &LimitStatus) -> Option<WarningAnswer> {
    let LimitAnswer { id, capacity, remaining, resets_at, .. } = limit;
    if status.would_refuse {
        return shadow_warning(limit, status);
    }
    let (code, detail) = if status.is_exceeded && status.counter.is_quota() {
        ("overage", format!("more than {capacity} are used; what is beyond is counted as overage"))
    } else if status.is_exceeded {
        ("over_limit", format!("more than {capacity} are used, which a hard limit would have refused"))
    } else if status.is_near() {
        ("near_limit", format!("{remaining} of {capacity} are left until {resets_at}"))
    } else {
        return None;
    };
    Some(WarningAnswer { code, limit: Some(id.clone()), detail })
}

/// A warning of a shadow limit that would have refused.
fn shadow_warning(limit: &LimitAnswer, status: &LimitStatus) -> Option<WarningAnswer> {
    let LimitAnswer { id, capacity, remaining, .. } = limit;
    let detail = format!("{remaining} of {capacity} are left: a hard limit would have refused this");
    let warning = WarningAnswer { code: "shadow_refused", limit: Some(id.clone()), detail };
    status.would_refuse.then_some(warning)
}
