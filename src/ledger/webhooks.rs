//! Webhooks: who receives which notices of quotas.

use diesel::dsl::exists;
use diesel::pg::Pg;
use diesel::prelude::*;
use diesel_async::RunQueryDsl;
use futures::FutureExt;
use serde_json::json;

use super::columns::Milliseconds;
use super::functions::clock_timestamp;
use super::schema::{webhook_deliveries, webhooks};
use super::{BEGIN, Conflict, Ledger, LedgerError, audit, instant, number};
use crate::domain::ids::TenantId;
use crate::domain::webhook::{WebhookEvent, WebhookId, WebhookUrl};

/// A webhook as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredWebhook {
    /// Its id.
    pub id: WebhookId,
    /// Where its receiver is.
    pub url: WebhookUrl,
    /// What it is notified about.
    pub events: Vec<WebhookEvent>,
    /// Only of this tenant; none for all.
    pub tenant: Option<TenantId>,
    /// When it was made (service time, unix ms).
    pub created_at_ms: i64,
    /// Who made it.
    pub created_by: String,
}

/// A webhook of which something cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnreadWebhook {
    /// Its id.
    pub id: WebhookId,
    /// When it was made (service time, unix ms).
    pub created_at_ms: i64,
    /// What cannot be read.
    pub why: String,
}

/// A place in the list of webhooks: when one was made (unix ms), and its id.
pub type WebhookCursor = (i64, WebhookId);

#[derive(Queryable, Selectable)]
#[diesel(table_name = webhooks, check_for_backend(Pg))]
struct Row {
    id: uuid::Uuid,
    url: String,
    events: Vec<Option<String>>,
    tenant: Option<TenantId>,
    #[diesel(deserialize_as = Milliseconds)]
    created_at: i64,
    created_by: String,
}

impl Row {
    fn read(self) -> Result<StoredWebhook, LedgerError> {
        let damaged = |what: &str| LedgerError::Damaged(format!("the {what} of the webhook {}", self.id));
        let event = |word: &Option<String>| word.as_deref().and_then(WebhookEvent::from_word);
        let events: Option<Vec<_>> = self.events.iter().map(event).collect();
        Ok(StoredWebhook {
            url: WebhookUrl::stored(&self.url).map_err(|_| damaged("address"))?,
            events: events.ok_or_else(|| damaged("events"))?,
            id: WebhookId::from_uuid(self.id),
            tenant: self.tenant,
            created_at_ms: self.created_at,
            created_by: self.created_by,
        })
    }

    /// As [`Self::read`], for lists: one that cannot be read is no reason to answer none.
    fn read_apart(self) -> Result<StoredWebhook, UnreadWebhook> {
        let (id, created_at_ms) = (WebhookId::from_uuid(self.id), self.created_at);
        self.read().map_err(|error| UnreadWebhook { id, created_at_ms, why: error.to_string() })
    }
}

impl Ledger {
    /// Stores a webhook: from now on notices are delivered to it.
    pub async fn create_webhook(&self, webhook: StoredWebhook) -> Result<(), LedgerError> {
        self.transact(BEGIN, move |connection| {
            async move {
                let words: Vec<_> = webhook.events.iter().map(|event| event.as_str()).collect();
                let values = (
                    webhooks::id.eq(webhook.id.uuid()),
                    webhooks::url.eq(webhook.url.as_str()),
                    webhooks::events.eq(&words),
                    webhooks::tenant.eq(&webhook.tenant),
                    webhooks::created_at.eq(instant::from_ms(webhook.created_at_ms)?),
                    webhooks::created_by.eq(&webhook.created_by),
                );
                diesel::insert_into(webhooks::table).values(values).execute(connection).await?;
                let detail =
                    json!({ "url": webhook.url.as_str(), "events": words, "tenant": webhook.tenant });
                audit::note(connection, &webhook.created_by, "create", &object(webhook.id), detail).await
            }
            .boxed()
        })
        .await
    }

    /// Deletes a webhook with its deliveries: nothing more is sent to it.
    pub async fn delete_webhook(&self, id: WebhookId, actor: &str) -> Result<(), LedgerError> {
        let actor = actor.to_owned();
        self.transact(BEGIN, move |connection| {
            async move {
                let found = webhooks::table.find(id.uuid());
                if diesel::delete(found).execute(connection).await? == 0 {
                    let missing = Conflict::Missing { kind: "webhook", id: id.to_string() };
                    return Err(LedgerError::Conflict(missing));
                }
                audit::note(connection, &actor, "delete", &object(id), json!({})).await
            }
            .boxed()
        })
        .await
    }

    /// The webhook with this id.
    pub async fn webhook(&self, id: WebhookId) -> Result<Option<StoredWebhook>, LedgerError> {
        let query = || webhooks::table.find(id.uuid()).select(Row::as_select());
        self.first(query).await?.map(Row::read).transpose()
    }

    /// Webhooks, newest first, at most `limit`, after `after`.
    pub async fn list_webhooks(
        &self,
        after: Option<WebhookCursor>,
        limit: usize,
    ) -> Result<Vec<Result<StoredWebhook, UnreadWebhook>>, LedgerError> {
        use webhooks::{created_at, id};
        let after = match after {
            Some((at_ms, of_id)) => Some((instant::from_ms(at_ms)?, of_id.uuid())),
            None => None,
        };
        let query = || {
            let mut found = webhooks::table.select(Row::as_select()).into_boxed();
            if let Some((at, of_id)) = after {
                found = found.filter(created_at.le(at)).filter(created_at.lt(at).or(id.lt(of_id)));
            }
            found.order((created_at.desc(), id.desc())).limit(number::limit(limit))
        };
        Ok(self.load(query).await?.into_iter().map(Row::read_apart).collect())
    }

    /// The webhooks of which a delivery is due at `now_ms` (unix ms) that nobody sends.
    pub async fn due_webhooks(
        &self,
        now_ms: i64,
    ) -> Result<Vec<Result<StoredWebhook, UnreadWebhook>>, LedgerError> {
        use webhook_deliveries::{claimed_until, next_attempt_at};
        let now = instant::from_ms(now_ms)?;
        let query = || {
            let due = webhook_deliveries::table
                .filter(webhook_deliveries::webhook.eq(webhooks::id))
                .filter(next_attempt_at.le(now))
                .filter(claimed_until.is_null().or(claimed_until.le(clock_timestamp().nullable())));
            webhooks::table.filter(exists(due)).select(Row::as_select())
        };
        Ok(self.load(query).await?.into_iter().map(Row::read_apart).collect())
    }
}

fn object(id: WebhookId) -> String {
    format!("webhook {id}")
}
