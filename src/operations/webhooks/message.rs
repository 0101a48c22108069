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
}

/// The body of a delivery. What became of a notice after it was raised is left to the delivery about that.
pub(super) fn body(claimed: &ClaimedDelivery) -> String {
    let ClaimedDelivery { tenant, notice, event, .. } = claimed;
    let resolved_at_ms = notice.resolved_at.filter(|_| *event == WebhookEvent::Resolved);
    let is_forecast = notice.percent == 0;
    let message = Message {
        r#type: event.as_str(),
        timestamp: rfc3339(resolved_at_ms.unwrap_or(notice.raised_at)),
        data: Data {
            tenant: tenant.as_str(),
            kind: if is_forecast { "forecast" } else { "threshold" },
            meter: notice.meter.as_str(),
            percent: (!is_forecast).then_some(notice.percent),
            period_start: rfc3339(notice.period_start),
            period_end: rfc3339(notice.period_end),
            consumed: notice.consumed.normalize().to_string(),
            allowance: notice.allowance.normalize().to_string(),
            runs_out_at: notice.runs_out_at.map(rfc3339),
            raised_at: rfc3339(notice.raised_at),
            resolved_at: resolved_at_ms.map(rfc3339),
        },
    };
    // Texts and numbers can always be written.
    serde_json::to_string(&message).unwrap_or_default()
}
