//! Requests about webhooks.

use super::Page;
use crate::domain::ids::TenantId;
use crate::domain::webhook::{DeliveryState, WebhookEvent, WebhookId, WebhookUrl};

/// A webhook to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreateWebhookRequest {
    /// Where its receiver is.
    pub url: WebhookUrl,
    /// What it is notified about, at least one.
    pub events: Vec<WebhookEvent>,
    /// Only of this tenant; none for all.
    pub tenant: Option<TenantId>,
}

/// Deliveries of a webhook.
#[derive(Debug, Clone)]
pub struct DeliveriesRequest {
    /// Of this webhook.
    pub webhook: WebhookId,
    /// Only those of this state.
    pub state: Option<DeliveryState>,
    /// Which page.
    pub page: Page,
}
