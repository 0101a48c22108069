//! Limits that cannot be treated as they say while the gate does not answer.

use crate::domain::algorithms::Algorithm;
use crate::domain::amount::Decimals;
use crate::domain::field_error::FieldError;
use crate::domain::limit::{Class, Limit};
use crate::domain::on_gate_failure::OnGateFailure;

/// The shortest window of which a share is worth giving: shares are renewed every few seconds.
const SHARED_SECONDS_MIN: u32 = 60;

/// What is wrong with how a limit treats work while the gate does not answer.
pub(super) fn unfit_without_gate(limit: &Limit, decimals: Option<Decimals>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    match (limit.on_gate_failure, limit.emergency_capacity) {
        (OnGateFailure::Emergency, None) => {
            let message = "must say how much each instance admits when `on_gate_failure` is `emergency`";
            errors.push(FieldError::new("/emergency_capacity", message));
        }
        (OnGateFailure::Emergency, Some(capacity)) => {
            let wrong = decimals.and_then(|decimals| capacity.to_units(decimals).err());
            errors.extend(wrong.map(|error| FieldError::new("/emergency_capacity", error.to_string())));
        }
        (_, Some(_)) => {
            let message = "must be left out unless `on_gate_failure` is `emergency`";
            errors.push(FieldError::new("/emergency_capacity", message));
        }
        (_, None) => {}
    }
    let unfit = match limit.on_gate_failure {
        OnGateFailure::Deny | OnGateFailure::Allow => None,
        OnGateFailure::Emergency => unfit_for_emergency(limit),
        OnGateFailure::Local => unfit_for_shares(limit),
    };
    errors.extend(unfit.map(|message| FieldError::new("/on_gate_failure", message)));
    errors
}

/// Why an instance cannot tell how much of a limit's cap is left.
fn unfit_for_emergency(limit: &Limit) -> Option<&'static str> {
    let is_concurrency = matches!(limit.algorithm, Algorithm::Concurrency(_));
    is_concurrency
        .then_some("must be `deny` or `allow` for what runs at once: it may end where nobody sees it")
}

/// Why no share of a limit's counter can be given: it is held there, in a window, and stands in no book.
fn unfit_for_shares(limit: &Limit) -> Option<&'static str> {
    if limit.is_global() {
        return Some("must not be `local` for what counts all tenants: its counter holds nothing");
    }
    match limit.algorithm {
        Algorithm::Calendar(_) if limit.class == Class::Quota => Some(
            "must not be `local` for a limit of class quota, whose counter is held against all that is booked; \
             give it the class rate",
        ),
        Algorithm::Calendar(_) => None,
        Algorithm::FixedWindow(window) if window.window_seconds.get() < SHARED_SECONDS_MIN => {
            Some("can be `local` from a window of 60 seconds on: shares are renewed every few seconds")
        }
        Algorithm::FixedWindow(_) => None,
        _ => Some("can be `local` for `calendar` and `fixed_window` only, whose counters hold for a window"),
    }
}
