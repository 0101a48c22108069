//! The shapes of a quota read.

use serde::Serialize;
use utoipa::ToSchema;

use super::grants::GrantLeftAnswer;
use super::{LimitAnswer, ack, amount};
use crate::domain::amount::Units;
use crate::domain::instant::rfc3339;
use crate::domain::pace::Pace;
use crate::operations::answers::{LimitStatus, QuotaParts, QuotaStatus};

/// A quota of one meter.
#[derive(Debug, Clone, Serialize, ToSchema, PartialEq, Eq)]
pub(in crate::http) struct QuotaLineAnswer {
    /// The meter.
    pub(in crate::http) meter: String,
    /// `hard`, `soft`, `prepaid` or `overdraft`.
    pub(in crate::http) mode: String,
    /// The plan's included amount for the period.
    pub(in crate::http) included: String,
    /// What was granted in the period, the included amount among it, and what came over of grants that go on.
    pub(in crate::http) granted: String,
    /// Unused quota of the period before.
    pub(in crate::http) rolled_in: String,
    /// What finance corrects of closed periods, and of holds that were carried on, and is booked in this one, below
    /// zero where less was used. It burns nothing of the allowance. Absent while the ledger does not answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::http) adjusted: Option<String>,
    /// Used up, also by facts that came after their own period was closed.
    pub(in crate::http) consumed: String,
    /// Held by running work.
    pub(in crate::http) reserved: String,
    /// Held by work that the period before has left open. It has paid for it, unless it was over its quota.
    pub(in crate::http) carried: String,
    /// Used beyond the allowance.
    pub(in crate::http) overage: String,
    /// How far below zero the quota may go.
    pub(in crate::http) overdraft: String,
    /// What is left, at least 0.
    pub(in crate::http) remaining: String,
    /// When the period ends.
    pub(in crate::http) resets_at: String,
    /// The grants that count now and of which something is left, as far as use is booked: the one that burns next
    /// first, at most 100. Absent while the ledger does not answer, and where there are thousands.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::http) grants: Option<Vec<GrantLeftAnswer>>,
    /// What is used in a day, from the period's start until now. Held units do not count.
    pub(in crate::http) burn_per_day: String,
    /// When it is used up at that pace, if that is before the period ends; absent before a tenth of it is over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::http) runs_out_at: Option<String>,
}

/// A billing period.
#[derive(Debug, Clone, Serialize, ToSchema, PartialEq, Eq)]
pub(in crate::http) struct PeriodAnswer {
    /// From this instant.
    pub(in crate::http) start: String,
    /// To this instant, exclusive.
    pub(in crate::http) end: String,
    /// The tenant's zone.
    pub(in crate::http) time_zone: String,
}

/// The answer to `GET /v1/tenants/{t}/quota`.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(in crate::http) struct QuotaAnswer {
    /// Whose.
    pub(in crate::http) tenant: String,
    /// The current billing period.
    pub(in crate::http) period: PeriodAnswer,
    /// `gate` or `ledger`: where the numbers were read.
    pub(in crate::http) source: String,
    /// When.
    pub(in crate::http) as_of: String,
    /// One per meter with a quota.
    pub(in crate::http) quotas: Vec<QuotaLineAnswer>,
    /// Every limit of the tenant (and the subject asked for).
    pub(in crate::http) limits: Vec<LimitAnswer>,
}

impl From<QuotaStatus> for QuotaAnswer {
    fn from(status: QuotaStatus) -> Self {
        let (quotas, limits): (Vec<_>, Vec<_>) =
            status.limits.iter().partition(|limit| limit.counter.is_quota());
        let asked = status.grants.as_ref();
        let parts = |quota: &LimitStatus| {
            asked.map(|_| status.parts.get(&quota.counter.meter).copied().unwrap_or_default())
        };
        let grants = |quota: &LimitStatus| {
            let left = asked?.get(&quota.counter.meter)?;
            Some(left.iter().map(GrantLeftAnswer::from).collect())
        };
        Self {
            tenant: status.tenant.to_string(),
            period: PeriodAnswer {
                start: rfc3339(status.period.start_ms),
                end: rfc3339(status.period.end_ms),
                time_zone: status.zone,
            },
            source: ack(status.source).into(),
            as_of: rfc3339(status.as_of_ms),
            quotas: quotas.into_iter().map(|quota| quota_line(quota, parts(quota), grants(quota))).collect(),
            limits: limits.into_iter().map(LimitAnswer::from).collect(),
        }
    }
}

fn quota_line(
    quota: &LimitStatus,
    asked: Option<QuotaParts>,
    grants: Option<Vec<GrantLeftAnswer>>,
) -> QuotaLineAnswer {
    let write = |units: Units| amount(units, quota.counter.decimals);
    let used = quota.consumed.checked_add(quota.reserved).unwrap_or(quota.consumed);
    let parts = asked.unwrap_or_default();
    let late = parts.consumed_beside_gate;
    let with_late = |units: Units| units.checked_add(late).unwrap_or(units);
    // The gate's capacity is less by what it does not count.
    let allowed = with_late(quota.capacity.saturating_sub(parts.overdraft));
    let (used, consumed) = (with_late(used), with_late(quota.consumed));
    let pace = |period| Pace { period, at_ms: quota.as_of_ms, consumed, allowance: allowed };
    let pace = quota.counter.window().map(pace);
    QuotaLineAnswer {
        meter: quota.counter.meter.to_string(),
        mode: quota.counter.quota_mode().unwrap_or_default().as_str().into(),
        included: write(quota.counter.capacity),
        granted: write(allowed.saturating_sub(parts.rolled_in)),
        rolled_in: write(parts.rolled_in),
        adjusted: asked.map(|parts| parts.adjusted.normalize().to_string()),
        consumed: write(consumed),
        reserved: write(quota.reserved),
        carried: write(parts.carried),
        overage: write(used.saturating_sub(allowed)),
        overdraft: write(parts.overdraft),
        remaining: write(with_late(quota.capacity).saturating_sub(used)),
        resets_at: rfc3339(quota.resets_at_ms),
        grants,
        burn_per_day: write(pace.map_or(Units::ZERO, Pace::per_day)),
        runs_out_at: pace.and_then(Pace::runs_out_at_ms).map(rfc3339),
    }
}
