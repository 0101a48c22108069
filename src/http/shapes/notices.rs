//! Notices of quotas.

use serde::Serialize;
use utoipa::ToSchema;

use crate::domain::instant::rfc3339;
use crate::operations::answers::QuotaNotice;

/// A notice of a quota, from what is booked.
#[derive(Debug, Clone, Serialize, ToSchema, PartialEq, Eq)]
pub(in crate::http) struct NoticeRow {
    /// `threshold`: so much of the quota is used. `forecast`: at the pace of the period so far it is used up before the
    /// period ends.
    pub(in crate::http) kind: &'static str,
    /// The meter.
    pub(in crate::http) meter: String,
    /// The threshold; absent for a forecast.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::http) percent: Option<i16>,
    /// The period, from this instant.
    pub(in crate::http) period_start: String,
    /// To this instant, exclusive.
    pub(in crate::http) period_end: String,
    /// What was used when it was raised.
    pub(in crate::http) consumed: String,
    /// Of how much: the included amount, grants and what rolled over, less what lapsed or was taken back.
    pub(in crate::http) allowance: String,
    /// When it is used up, of a forecast.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::http) runs_out_at: Option<String>,
    /// When it was raised.
    pub(in crate::http) raised_at: String,
    /// When it was found to hold no longer, or its period to have ended; absent while it holds. A notice that is raised
    /// after its period, of a threshold that was reached in it, is resolved as it is raised.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::http) resolved_at: Option<String>,
}

impl From<QuotaNotice> for NoticeRow {
    fn from(notice: QuotaNotice) -> Self {
        let is_forecast = notice.percent == 0;
        Self {
            kind: if is_forecast { "forecast" } else { "threshold" },
            meter: notice.meter.to_string(),
            percent: (!is_forecast).then_some(notice.percent),
            period_start: rfc3339(notice.period_start),
            period_end: rfc3339(notice.period_end),
            consumed: notice.consumed.normalize().to_string(),
            allowance: notice.allowance.normalize().to_string(),
            runs_out_at: notice.runs_out_at.map(rfc3339),
            raised_at: rfc3339(notice.raised_at),
            resolved_at: notice.resolved_at.map(rfc3339),
        }
    }
}
