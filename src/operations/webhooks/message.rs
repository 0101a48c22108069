//! What a receiver gets: the same body at each attempt.

use serde::Serialize;

use crate::domain::instant::rfc3339;
use crate::domain::webhook::WebhookEvent;
use crate::ledger::ClaimedDelivery;

#[derive(Serialize)]
struct Message<'a> {
    r#type: &'static str,
    /// When it happened.
    timestamp: String,
    data: Data<'a>,
}

/// The fields of a notice, as its list has them, with its tenant.
#[derive(Serialize)]
struct Data<'a> {
    tenant: &'a str,
    kind: &'static str,
    meter: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    percent: Option<i16>,
    period_start: String,
    period_end: String,
    consumed: String,
    allowance: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    runs_out_at: Option<String>,
    raised_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    resolved_at: Option<String>,
    /// All notices of the quota that ended at once.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    resolves: Vec<Resolved>,
}

#[derive(Serialize)]
struct Resolved {
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    percent: Option<i16>,
}

impl Resolved {
    /// The notice with this threshold; 0 is a forecast.
    fn of(percent: &i16) -> Self {
        Self { kind: kind(*percent), percent: Some(*percent).filter(|percent| *percent != 0) }
    }
}

fn kind(percent: i16) -> &'static str {
    if percent == 0 { "forecast" } else { "threshold" }
}

/// The body of a delivery. What became of a notice after it was raised is left to the delivery about that.
pub(super) fn body(claimed: &ClaimedDelivery) -> String {
    let ClaimedDelivery { tenant, notice, event, .. } = claimed;
    let is_end = *event == WebhookEvent::Resolved;
    let resolved_at_ms = notice.resolved_at.filter(|_| is_end || notice.is_late());
    let message = Message {
        r#type: event.as_str(),
        timestamp: rfc3339(resolved_at_ms.unwrap_or(notice.raised_at)),
        data: Data {
            tenant: tenant.as_str(),
            kind: kind(notice.percent),
            meter: notice.meter.as_str(),
            percent: Some(notice.percent).filter(|percent| *percent != 0),
            period_start: rfc3339(notice.period_start),
            period_end: rfc3339(notice.period_end),
            consumed: notice.consumed.normalize().to_string(),
            allowance: notice.allowance.normalize().to_string(),
            runs_out_at: notice.runs_out_at.map(rfc3339),
            raised_at: rfc3339(notice.raised_at),
            resolved_at: resolved_at_ms.map(rfc3339),
            resolves: if is_end {
                claimed.ended_together.iter().map(Resolved::of).collect()
            } else {
                Vec::new()
            },
        },
    };
    // Texts and numbers can always be written.
    serde_json::to_string(&message).unwrap_or_default()
}
