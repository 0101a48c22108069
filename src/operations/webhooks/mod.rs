//! Webhooks: receivers as resources, their deliveries, and the job that sends them.

mod message;
mod send;

use std::fmt::Display;
use std::sync::Arc;

use crate::domain::webhook::{DeliveryId, WebhookId, WebhookSecret};
use crate::ledger::{DeliveryCursor, DeliveryFilter, UnreadWebhook, WebhookCursor};
use crate::operations::answers::{Rows, StoredDelivery, StoredWebhook, WebhookDetails};
use crate::operations::core::Core;
use crate::operations::damage::Work;
use crate::operations::error::{Answer, OperationError};
use crate::operations::requests::{CreateWebhookRequest, DeliveriesRequest, Page};
use crate::outbound::{Outbound, OutboundOptions};

pub use send::Delivered;

/// Webhooks and their deliveries.
pub struct Webhooks {
    core: Arc<Core>,
    outbound: Outbound,
    /// Each webhook's secret is derived from it.
    secrets: [u8; 32],
}

impl Webhooks {
    /// `secret` is the installation's.
    pub(super) fn new(core: Arc<Core>, options: OutboundOptions, secret: &[u8; 32]) -> Self {
        let secrets = blake3::derive_key("tollgate webhook secrets v1", secret);
        Self { core, outbound: Outbound::new(options), secrets }
    }

    fn secret(&self, id: WebhookId) -> WebhookSecret {
        WebhookSecret::of(&self.secrets, id)
    }

    /// Makes a webhook; only this answer has its secret.
    ///
    /// Errors: its tenant is unknown; its address is one that may not be reached.
    pub async fn create(&self, request: CreateWebhookRequest, actor: &str) -> Answer<WebhookDetails> {
        let CreateWebhookRequest { url, events, tenant } = request;
        self.outbound.check(&url).map_err(|refused| OperationError::field("/url", refused.to_string()))?;
        if let Some(tenant) = &tenant
            && self.core.policy.find_tenant(tenant).await?.is_none()
        {
            return Err(OperationError::field("/tenant", format!("there is no tenant {tenant}")));
        }
        let id = WebhookId::from_uuid(uuid::Uuid::now_v7());
        let (created_at_ms, created_by) = (self.core.clock.now_ms(), actor.to_owned());
        let stored = StoredWebhook { id, url, events, tenant, created_at_ms, created_by };
        self.core.ledger.create_webhook(stored.clone()).await?;
        Ok(WebhookDetails { stored, secret: Some(self.secret(id).text()) })
    }

    /// The webhook with this id.
    pub async fn get(&self, id: WebhookId) -> Answer<WebhookDetails> {
        let stored = self.core.ledger.webhook(id).await?;
        let stored = stored.ok_or_else(|| OperationError::NotFound(format!("there is no webhook {id}")))?;
        Ok(WebhookDetails { stored, secret: None })
    }

    /// Webhooks, newest first, but for those that cannot be read.
    pub async fn list(&self, page: Page) -> Answer<Rows<WebhookDetails>> {
        let limit = page.rows_max();
        let after: Option<WebhookCursor> = page.after.as_deref().map(place).transpose()?;
        let rows = self.core.ledger.list_webhooks(after, limit + 1).await?;
        let Rows { data, next, as_of_ms } = Rows::page(rows, limit, |row| match row {
            Ok(stored) => format!("{}:{}", stored.created_at_ms, stored.id),
            Err(unread) => format!("{}:{}", unread.created_at_ms, unread.id),
        });
        let readable = self.readable(data).await.into_iter();
        let data = readable.map(|stored| WebhookDetails { stored, secret: None }).collect();
        Ok(Rows { data, next, as_of_ms })
    }

    /// Those that can be read. The others are reported.
    async fn readable(&self, found: Vec<Result<StoredWebhook, UnreadWebhook>>) -> Vec<StoredWebhook> {
        let mut readable = Vec::new();
        for webhook in found {
            match webhook {
                Ok(stored) => readable.push(stored),
                Err(UnreadWebhook { id, why, .. }) => self.pass_over(id, &why).await,
            }
        }
        readable
    }

    async fn pass_over(&self, id: WebhookId, why: &(impl Display + Sync)) {
        self.core.damage.pass_over(Work::Delivery, &format!("webhook {id}"), why).await;
    }

    /// Deletes a webhook with its deliveries.
    pub async fn delete(&self, id: WebhookId, actor: &str) -> Answer<()> {
        Ok(self.core.ledger.delete_webhook(id, actor).await?)
    }

    /// Deliveries of a webhook, newest first.
    pub async fn list_deliveries(&self, request: DeliveriesRequest) -> Answer<Rows<StoredDelivery>> {
        let DeliveriesRequest { webhook, state, page } = request;
        self.get(webhook).await?;
        let limit = page.rows_max();
        let after: Option<DeliveryCursor> = page.after.as_deref().map(place).transpose()?;
        let filter = DeliveryFilter { webhook, state };
        let rows = self.core.ledger.list_deliveries(filter, after, limit + 1).await?;
        Ok(Rows::page(rows, limit, |row| format!("{}:{}", row.created_at_ms, row.id)))
    }

    /// Sends a delivery again, under the same id, with the next run of the job.
    pub async fn replay(&self, webhook: WebhookId, id: DeliveryId, actor: &str) -> Answer<StoredDelivery> {
        let now_ms = self.core.clock.now_ms();
        let replayed = self.core.ledger.replay_delivery(webhook, id, now_ms, actor).await?;
        replayed.ok_or_else(|| OperationError::NotFound(format!("the webhook has no delivery {id}")))
    }
}

/// A place in a list: an instant and an id.
fn place<Id: std::str::FromStr>(text: &str) -> Answer<(i64, Id)> {
    let parts = text.split_once(':').and_then(|(at, id)| Some((at.parse().ok()?, id.parse().ok()?)));
    parts.ok_or_else(OperationError::bad_cursor)
}
