//! Sends what is due. A receiver gets a delivery at least once, always under the same id.

use std::ops::AddAssign;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::join_all;
use futures::stream::{self, StreamExt};
use rand::seq::SliceRandom;
use tokio::time::Instant;

use super::{Webhooks, message};
use crate::domain::webhook::{RETRIED_FOR_MS, WebhookId, wait_ms};
use crate::ledger::{Attempted, ClaimedDelivery, StoredWebhook};
use crate::operations::error::Answer;
use crate::outbound::{Call, NoAnswer};

/// How many receivers are called at once, and how many deliveries one of them gets at once.
const RECEIVERS: usize = 8;
const LANES: usize = 2;
/// How long a run goes on claiming: the next one sees webhooks whose deliveries came later.
const RUN_MAX: Duration = Duration::from_secs(30);
/// How much longer than the call a claim holds, for what has to be booked.
const CLAIM_SLACK: Duration = Duration::from_secs(15);

/// What a run has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Delivered {
    /// Deliveries that receivers have accepted.
    pub delivered: u64,
    /// Attempts that failed and are followed by others.
    pub waiting: u64,
    /// Deliveries that were given up.
    pub failed: u64,
}

impl AddAssign for Delivered {
    fn add_assign(&mut self, more: Self) {
        self.delivered += more.delivered;
        self.waiting += more.waiting;
        self.failed += more.failed;
    }
}

impl Webhooks {
    /// Sends deliveries that are due, those of one receiver apart from those of others. Instances may do so at once:
    /// each delivery is claimed first. One whose sender died is sent again when its claim ends. What cannot be read is
    /// reported, and holds up no other receiver.
    ///
    /// Errors: the ledger was away for one receiver at least. What can be sent to the others is sent.
    pub async fn deliver(&self) -> Answer<Delivered> {
        let until = Instant::now() + RUN_MAX;
        let found = self.core.ledger.due_webhooks(self.core.clock.now_ms()).await?;
        let mut due = self.readable(found).await;
        // So that no receiver comes last in each run.
        due.shuffle(&mut rand::rng());
        let sending = stream::iter(due).map(|webhook| self.deliver_to(webhook, until));
        let ended: Vec<_> = sending.buffer_unordered(RECEIVERS).collect().await;
        let (mut done, mut away) = (Delivered::default(), None);
        for (webhook, sent) in ended {
            match sent {
                Ok(sent) => done += sent,
                Err(error) if error.is_server_away() => away = away.or(Some(error)),
                Err(error) => self.pass_over(webhook, &error).await,
            }
        }
        away.map_or(Ok(done), Err)
    }

    /// Sends to one receiver until nothing is due. One that does not answer is left alone until the next run.
    async fn deliver_to(&self, webhook: StoredWebhook, until: Instant) -> (WebhookId, Answer<Delivered>) {
        let is_silent = AtomicBool::new(false);
        let lanes = (0..LANES).map(|_| self.lane(&webhook, until, &is_silent));
        // Each is waited for: a lane that fails must not cut off what the other one is sending.
        let mut ended = join_all(lanes).await.into_iter();
        let sent: Answer<Delivered> = ended.try_fold(Delivered::default(), |mut sum, more| {
            sum += more?;
            Ok(sum)
        });
        (webhook.id, sent)
    }

    async fn lane(
        &self,
        webhook: &StoredWebhook,
        until: Instant,
        is_silent: &AtomicBool,
    ) -> Answer<Delivered> {
        let lease = self.outbound.timeout() + CLAIM_SLACK;
        let mut done = Delivered::default();
        while Instant::now() < until && !is_silent.load(Ordering::Relaxed) {
            let now_ms = self.core.clock.now_ms();
            let Some(claimed) = self.core.ledger.claim_delivery(webhook.id, now_ms, lease).await? else {
                break;
            };
            let answered = self.send(webhook, &claimed).await;
            if answered.is_err() {
                is_silent.store(true, Ordering::Relaxed);
            }
            let attempted = self.judge(&claimed, answered);
            if !self.core.ledger.book_attempt(&claimed, &attempted).await? {
                tracing::warn!(delivery = %claimed.id, "the claim of a delivery ended before its attempt");
                continue;
            }
            match (&attempted.error, attempted.again) {
                (None, _) => done.delivered += 1,
                (Some(_), Some(_)) => done.waiting += 1,
                (Some(error), None) => {
                    done.failed += 1;
                    tracing::warn!(webhook = %webhook.id, delivery = %claimed.id, error, "a delivery was given up");
                }
            }
        }
        Ok(done)
    }

    async fn send(&self, webhook: &StoredWebhook, claimed: &ClaimedDelivery) -> Result<u16, NoAnswer> {
        let (id, body) = (claimed.id.to_string(), message::body(claimed));
        // Receivers compare it with their own clocks, so a test clock does not count.
        let timestamp_s = self.core.wall_clock.now_ms().div_euclid(1_000);
        let headers = vec![
            ("webhook-signature", self.secret(webhook.id).sign(&id, timestamp_s, &body)),
            ("webhook-timestamp", timestamp_s.to_string()),
            ("webhook-id", id),
        ];
        self.outbound.post(&webhook.url, Call { headers, body }).await
    }

    /// What follows from an attempt. The last one of a delivery is made when its day is over.
    fn judge(&self, claimed: &ClaimedDelivery, answered: Result<u16, NoAnswer>) -> Attempted {
        let at_ms = self.core.clock.now_ms();
        let status = answered.as_ref().ok().copied();
        let error = match answered {
            Ok(200..=299) => None,
            Ok(300..=399) => Some("it redirects, which is not followed".to_owned()),
            Ok(_) => Some("it did not accept the delivery".to_owned()),
            Err(error) => Some(error.to_string()),
        };
        let until_ms = claimed.retried_until_ms.unwrap_or(at_ms.saturating_add(RETRIED_FOR_MS));
        let wait_ms = wait_ms(claimed.attempts.saturating_add(1), rand::random_range(0..=1_000));
        let again = (error.is_some() && at_ms < until_ms)
            .then(|| (at_ms.saturating_add(wait_ms).min(until_ms), until_ms));
        Attempted { at_ms, status, error, again }
    }
}
