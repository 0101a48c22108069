//! What the verbs of webhooks answer.

use crate::operations::answers::StoredWebhook;

/// A webhook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebhookDetails {
    /// As it is stored.
    pub stored: StoredWebhook,
    /// The secret that its deliveries are signed with, only where it is made.
    pub secret: Option<String>,
}
