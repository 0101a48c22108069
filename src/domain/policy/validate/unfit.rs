//! Limits whose way of counting does not fit what they count.

use super::OF_QUOTA_IN_SHADOW;
use crate::domain::algorithms::Algorithm;
use crate::domain::field_error::FieldError;
use crate::domain::limit::{Class, Kind, Limit, Span};
use crate::domain::period::WindowKind;

/// Why a limit cannot be of class quota, as far as it says so itself.
pub(super) fn unfit_for_quota(limit: &Limit) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if limit.class != Class::Quota {
        return errors;
    }
    if !limit.algorithm.is_restorable() {
        let message = format!(
            "must be rate: no ledger can tell what `{}` has counted",
            limit.algorithm.name().as_str()
        );
        errors.push(FieldError::new("/class", message));
    }
    if limit.rollout_percent.get() < 100 {
        let message = "must be 100 for a limit of class quota, which is held against all that is booked; \
            give it the class rate";
        errors.push(FieldError::new("/rollout_percent", message));
    }
    if limit.kind == Kind::Shadow {
        errors.push(FieldError::new("/kind", OF_QUOTA_IN_SHADOW));
    }
    if limit.load_scaled {
        let message = "must be left out for a limit of class quota, which is promised whatever the load; \
            give it the class rate";
        errors.push(FieldError::new("/load_scaled", message));
    }
    errors
}

/// Why a limit cannot judge how often somebody calls: it takes one subject, whose calls are apart from those of others.
pub(super) fn unfit_for_anomaly(limit: &Limit) -> Option<FieldError> {
    limit.anomaly?;
    let message = match &limit.subject_kind {
        None => "needs the scope `subject`: it is about how one subject calls".to_owned(),
        Some(kind) if kind.shares_slots() => {
            format!("needs another kind: subjects of the kind `{kind}` share slots, and their calls are one")
        }
        Some(_) => return None,
    };
    Some(FieldError::new("/anomaly", message))
}

/// Why a limit cannot count subjects that share slots: the books do not name them, so nothing of theirs is restored,
/// and a log would have an entry for each of them.
pub(super) fn unfit_for_slots(limit: &Limit) -> Vec<FieldError> {
    let Some(kind) = limit.subject_kind.as_ref().filter(|kind| kind.shares_slots()) else {
        return Vec::new();
    };
    let mut errors = Vec::new();
    if limit.class == Class::Quota {
        let message =
            format!("must be rate: subjects of the kind `{kind}` share slots, which the books do not name");
        errors.push(FieldError::new("/class", message));
    }
    if matches!(limit.algorithm, Algorithm::SlidingLog(_) | Algorithm::Concurrency(_)) {
        let message = format!(
            "must be another: subjects of the kind `{kind}` share slots, of which neither entries nor holds are kept apart"
        );
        errors.push(FieldError::new("/algorithm", message));
    }
    errors
}

/// Why a limit cannot count all tenants: it does so by windows that no tenant's calendar cuts, in the gate's memory
/// alone.
pub(super) fn unfit_for_all_tenants(limit: &Limit) -> Vec<FieldError> {
    if !limit.is_global() {
        return Vec::new();
    }
    let mut errors = Vec::new();
    match limit.algorithm {
        Algorithm::Calendar(_) if limit.algorithm.span() == Span::Calendar(WindowKind::Period) => {
            let message = "must be another: a billing period is a tenant's own, and this counts all tenants";
            errors.push(FieldError::new("/window", message));
        }
        Algorithm::Calendar(_) | Algorithm::FixedWindow(_) | Algorithm::SlidingCounter(_) => {}
        _ => {
            let message =
                "must be `calendar`, `fixed_window` or `sliding_counter` for what counts all tenants";
            errors.push(FieldError::new("/algorithm", message));
        }
    }
    if limit.class == Class::Quota {
        let message =
            "must be rate for what counts all tenants: the ledger restores no counter of theirs together";
        errors.push(FieldError::new("/class", message));
    }
    if limit.punishment.is_some() {
        let message = "must be left out for what counts all tenants: one tenant's calls would ban the others";
        errors.push(FieldError::new("/punishment", message));
    }
    errors
}
