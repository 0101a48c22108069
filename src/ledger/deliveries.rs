//! Deliveries of webhooks: one for each webhook and notice. An instance claims a delivery before it sends it.

use std::time::Duration;

use chrono::{DateTime, Utc};
use diesel::pg::Pg;
use diesel::prelude::*;
use diesel::sql_types::{self, Array, BigInt, Integer, Nullable, Numeric, SmallInt, Text, Timestamptz};
use diesel_async::RunQueryDsl;
use futures::FutureExt;
use rust_decimal::Decimal;
use serde_json::json;

use super::columns::{Milliseconds, MillisecondsIfAny, Small};
use super::prepared::sql_query;
use super::schema::webhook_deliveries;
use super::{BEGIN, Ledger, LedgerError, QuotaNotice, audit, instant, number};
use crate::domain::ids::{MeterId, TenantId};
use crate::domain::webhook::{DeliveryId, DeliveryState, WebhookEvent, WebhookId};

/// A delivery as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredDelivery {
    /// Its id.
    pub id: DeliveryId,
    /// About what it is.
    pub event: WebhookEvent,
    /// Whose quota.
    pub tenant: TenantId,
    /// Of which meter.
    pub meter: MeterId,
    /// The start of its period (unix ms).
    pub period_start_ms: i64,
    /// The threshold; 0 for a forecast.
    pub percent: i16,
    /// How far it is.
    pub state: DeliveryState,
    /// How often it was sent, since it was made or last replayed.
    pub attempts: u32,
    /// When it was made (service time, unix ms).
    pub created_at_ms: i64,
    /// When it was last sent (service time, unix ms).
    pub last_attempt_at_ms: Option<i64>,
    /// The status that the receiver answered then.
    pub last_status: Option<u16>,
    /// Why it was not accepted then.
    pub last_error: Option<String>,
    /// When it is sent next (service time, unix ms).
    pub next_attempt_at_ms: Option<i64>,
}

/// Which deliveries to list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeliveryFilter {
    /// Of this webhook.
    pub webhook: WebhookId,
    /// Only those of this state.
    pub state: Option<DeliveryState>,
}

/// A place in the list of deliveries: when one was made (unix ms), and its id.
pub type DeliveryCursor = (i64, DeliveryId);

/// A delivery that the caller alone sends until its claim ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimedDelivery {
    /// Its id.
    pub id: DeliveryId,
    /// The number of the claim: the end of an attempt is booked under it.
    pub claim: i64,
    /// About what it is.
    pub event: WebhookEvent,
    /// How often it was sent before.
    pub attempts: u32,
    /// When it is given up (service time, unix ms); none before an attempt has failed.
    pub retried_until_ms: Option<i64>,
    /// Whose quota.
    pub tenant: TenantId,
    /// The notice.
    pub notice: QuotaNotice,
    /// The thresholds of the notices of the quota that ended when it did; 0 for the forecast.
    pub ended_together: Vec<i16>,
}

/// The end of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempted {
    /// When it was made (service time, unix ms).
    pub at_ms: i64,
    /// The status that the receiver answered.
    pub status: Option<u16>,
    /// Why it was not accepted; none if it was.
    pub error: Option<String>,
    /// When it is sent again and until when it is retried (service time, unix ms); none where it is not sent again.
    pub again: Option<(i64, i64)>,
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = webhook_deliveries, check_for_backend(Pg))]
struct Row {
    id: uuid::Uuid,
    event: String,
    tenant: TenantId,
    meter: MeterId,
    #[diesel(deserialize_as = Milliseconds)]
    period_start: i64,
    percent: i16,
    state: String,
    #[diesel(deserialize_as = Small)]
    attempts: u32,
    #[diesel(deserialize_as = Milliseconds)]
    created_at: i64,
    #[diesel(deserialize_as = MillisecondsIfAny)]
    last_attempt_at: Option<i64>,
    last_status: Option<i16>,
    last_error: Option<String>,
    #[diesel(deserialize_as = MillisecondsIfAny)]
    next_attempt_at: Option<i64>,
}

impl Row {
    fn read(self) -> Result<StoredDelivery, LedgerError> {
        let state = DeliveryState::from_word(&self.state).ok_or_else(|| damaged("state", self.id))?;
        Ok(StoredDelivery {
            id: DeliveryId::from_uuid(self.id),
            event: event(&self.event, self.id)?,
            tenant: self.tenant,
            meter: self.meter,
            period_start_ms: self.period_start,
            percent: self.percent,
            state,
            attempts: self.attempts,
            created_at_ms: self.created_at,
            last_attempt_at_ms: self.last_attempt_at,
            last_status: self.last_status.and_then(|status| u16::try_from(status).ok()),
            last_error: self.last_error,
            next_attempt_at_ms: self.next_attempt_at,
        })
    }
}

#[derive(QueryableByName)]
struct ClaimedRow {
    #[diesel(sql_type = sql_types::Uuid)]
    id: uuid::Uuid,
    #[diesel(sql_type = Text)]
    event: String,
    #[diesel(sql_type = BigInt)]
    claim: i64,
    #[diesel(sql_type = Integer)]
    attempts: i32,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    retried_until: Option<DateTime<Utc>>,
    #[diesel(sql_type = Text)]
    tenant: TenantId,
    #[diesel(sql_type = Text)]
    meter: MeterId,
    #[diesel(sql_type = Timestamptz)]
    period_start: DateTime<Utc>,
    #[diesel(sql_type = Timestamptz)]
    period_end: DateTime<Utc>,
    #[diesel(sql_type = SmallInt)]
    percent: i16,
    #[diesel(sql_type = Numeric)]
    consumed: Decimal,
    #[diesel(sql_type = Numeric)]
    allowance: Decimal,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    runs_out_at: Option<DateTime<Utc>>,
    #[diesel(sql_type = Timestamptz)]
    raised_at: DateTime<Utc>,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    resolved_at: Option<DateTime<Utc>>,
    #[diesel(sql_type = Array<SmallInt>)]
    ended_together: Vec<i16>,
}

impl ClaimedRow {
    fn read(self) -> Result<ClaimedDelivery, LedgerError> {
        let ms = |at: DateTime<Utc>| at.timestamp_millis();
        Ok(ClaimedDelivery {
            id: DeliveryId::from_uuid(self.id),
            claim: self.claim,
            event: event(&self.event, self.id)?,
            attempts: u32::try_from(self.attempts).unwrap_or_default(),
            retried_until_ms: self.retried_until.map(ms),
            tenant: self.tenant,
            notice: QuotaNotice {
                meter: self.meter,
                period_start: ms(self.period_start),
                period_end: ms(self.period_end),
                percent: self.percent,
                consumed: self.consumed,
                allowance: self.allowance,
                runs_out_at: self.runs_out_at.map(ms),
                raised_at: ms(self.raised_at),
                resolved_at: self.resolved_at.map(ms),
            },
            ended_together: self.ended_together,
        })
    }
}

impl Ledger {
    /// Deliveries of a webhook, newest first, at most `limit`, after `after`.
    pub async fn list_deliveries(
        &self,
        filter: DeliveryFilter,
        after: Option<DeliveryCursor>,
        limit: usize,
    ) -> Result<Vec<StoredDelivery>, LedgerError> {
        use webhook_deliveries::{created_at, id, state, webhook};
        let after = match after {
            Some((at_ms, of_id)) => Some((instant::from_ms(at_ms)?, of_id.uuid())),
            None => None,
        };
        let query = || {
            let of_one = webhook_deliveries::table.filter(webhook.eq(filter.webhook.uuid()));
            let mut found = of_one.select(Row::as_select()).into_boxed();
            if let Some(in_state) = filter.state {
                found = found.filter(state.eq(in_state.as_str()));
            }
            if let Some((at, of_id)) = after {
                found = found.filter(created_at.le(at)).filter(created_at.lt(at).or(id.lt(of_id)));
            }
            found.order((created_at.desc(), id.desc())).limit(number::limit(limit))
        };
        self.load(query).await?.into_iter().map(Row::read).collect()
    }

    /// Claims the delivery of a webhook that has been due for the longest at `now_ms` (unix ms), for so long; none
    /// where none is due that nobody sends.
    pub async fn claim_delivery(
        &self,
        webhook: WebhookId,
        now_ms: i64,
        lease: Duration,
    ) -> Result<Option<ClaimedDelivery>, LedgerError> {
        let now = instant::from_ms(now_ms)?;
        let lease_ms = i64::try_from(lease.as_millis()).unwrap_or(i64::MAX);
        let claimed = self.transact(BEGIN, move |connection| {
            async move {
                let claim = sql_query(include_str!("sql/claim_delivery.sql"))
                    .bind::<sql_types::Uuid, _>(webhook.uuid())
                    .bind::<Timestamptz, _>(now)
                    .bind::<BigInt, _>(lease_ms);
                Ok(claim.get_result::<ClaimedRow>(connection).await.optional()?)
            }
            .boxed()
        });
        claimed.await?.map(ClaimedRow::read).transpose()
    }

    /// Books the end of an attempt under its claim. Returns false where the claim has ended and another has begun, or
    /// the delivery is gone.
    pub async fn book_attempt(
        &self,
        claimed: &ClaimedDelivery,
        attempted: &Attempted,
    ) -> Result<bool, LedgerError> {
        use webhook_deliveries as row;
        let state = match (&attempted.error, attempted.again) {
            (None, _) => DeliveryState::Delivered,
            (Some(_), Some(_)) => DeliveryState::Waiting,
            (Some(_), None) => DeliveryState::Failed,
        };
        let (next, until) = attempted.again.unzip();
        let until = until.or(claimed.retried_until_ms);
        let held = row::table.filter(row::id.eq(claimed.id.uuid())).filter(row::claim.eq(claimed.claim));
        let update = diesel::update(held).set((
            row::state.eq(state.as_str()),
            row::attempts.eq(row::attempts + 1),
            row::next_attempt_at.eq(next.map(instant::from_ms).transpose()?),
            row::retried_until.eq(until.map(instant::from_ms).transpose()?),
            row::last_attempt_at.eq(instant::from_ms(attempted.at_ms)?),
            row::last_status.eq(attempted.status.and_then(|status| i16::try_from(status).ok())),
            row::last_error.eq(attempted.error.clone()),
            row::claimed_until.eq(None::<DateTime<Utc>>),
        ));
        Ok(self.execute(update).await? > 0)
    }

    /// Makes a delivery due at `now_ms` (unix ms) as if it had never been sent, and ends its claim: an attempt that is
    /// under way books nothing. Returns it as it is then; none where the webhook has no such delivery.
    pub async fn replay_delivery(
        &self,
        webhook: WebhookId,
        id: DeliveryId,
        now_ms: i64,
        actor: &str,
    ) -> Result<Option<StoredDelivery>, LedgerError> {
        use webhook_deliveries as row;
        let (now, actor) = (instant::from_ms(now_ms)?, actor.to_owned());
        let replayed = self.transact(BEGIN, move |connection| {
            async move {
                let found = row::table.filter(row::id.eq(id.uuid())).filter(row::webhook.eq(webhook.uuid()));
                let replay = diesel::update(found).set((
                    row::state.eq(DeliveryState::Waiting.as_str()),
                    row::attempts.eq(0),
                    row::next_attempt_at.eq(now),
                    row::retried_until.eq(None::<DateTime<Utc>>),
                    row::claim.eq(row::claim + 1),
                    row::claimed_until.eq(None::<DateTime<Utc>>),
                ));
                let Some(replayed) =
                    replay.returning(Row::as_returning()).get_result(connection).await.optional()?
                else {
                    return Ok(None);
                };
                let detail = json!({ "webhook": webhook.to_string() });
                audit::note(connection, &actor, "replay", &format!("webhook_delivery {id}"), detail).await?;
                Ok(Some(replayed))
            }
            .boxed()
        });
        replayed.await?.map(Row::read).transpose()
    }
}

fn event(word: &str, id: uuid::Uuid) -> Result<WebhookEvent, LedgerError> {
    WebhookEvent::from_word(word).ok_or_else(|| damaged("event", id))
}

fn damaged(what: &str, id: uuid::Uuid) -> LedgerError {
    LedgerError::Damaged(format!("the {what} of the delivery {id}"))
}
