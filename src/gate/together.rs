//! Reserves that are asked for at once, such as those of a batch: those of one partition go in one call of a script.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use redis::Value;
use tokio::sync::oneshot;

use crate::domain::codec::{Undecodable, Write};
use crate::domain::ids::{Epoch, Partition};

use super::Gate;
use super::call::Reply;
use super::error::GateError;
use super::scripts::Script;

/// As many as one call takes: Redis does nothing else meanwhile.
const CALLS_MAX: usize = 16;

tokio::task_local! {
    static TOGETHER: Arc<Together>;
}

/// A reserve as it goes to its script.
pub(super) struct Packed {
    /// Reservation, due list, states.
    pub(super) keys: Vec<String>,
    /// Front, call, lines and body.
    pub(super) arguments: [Vec<u8>; 3],
}

/// What calls must have in common to go together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Company {
    /// Whose memory they change.
    pub(super) partition: Partition,
    /// The epoch they are meant for.
    pub(super) epoch: Epoch,
    /// The time they go by.
    pub(super) now_ms: Option<i64>,
}

/// What the script answered to one call; none where the call has to go alone.
type Heard = Result<Option<Reply>, GateError>;

struct Waiting {
    packed: Packed,
    heard: oneshot::Sender<Heard>,
}

/// The calls of one piece of work that wait for each other.
#[derive(Default)]
struct Together(Mutex<HashMap<Company, Vec<Waiting>>>);

impl Together {
    /// Adds a call, and answers how many wait now.
    fn add(&self, company: Company, waiting: Waiting) -> usize {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let calls = all.entry(company).or_default();
        calls.push(waiting);
        calls.len()
    }

    fn take(&self, company: Company) -> Vec<Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&company).unwrap_or_default()
    }
}

/// Sends for all that wait. Let go of before, it lets them go, each alone.
struct Sender<'a>(&'a Together, Company);

impl Sender<'_> {
    fn take(self) -> Vec<Waiting> {
        self.0.take(self.1)
    }
}

impl Drop for Sender<'_> {
    fn drop(&mut self) {
        drop(self.0.take(self.1));
    }
}

impl Gate {
    /// Does work in which reserves of one partition that are asked for at once go in one call, each for itself all or nothing, in the
    /// order in which they are asked for.
    pub async fn together<T>(work: impl Future<Output = T>) -> T {
        TOGETHER.scope(Arc::default(), work).await
    }

    /// Whether this is part of such work.
    pub(super) fn has_company() -> bool {
        TOGETHER.try_with(|_| ()).is_ok()
    }

    /// What the script answers to a reserve that goes with others; none where it has to go alone.
    pub(super) async fn reserve_together(&self, company: Company, packed: Packed) -> Heard {
        let Ok(together) = TOGETHER.try_with(Arc::clone) else { return Ok(None) };
        let (heard, hears) = oneshot::channel();
        match together.add(company, Waiting { packed, heard }) {
            CALLS_MAX => self.send_together(company, together.take(company)).await,
            1 => {
                let sender = Sender(&together, company);
                // The others of the same work come meanwhile.
                tokio::task::yield_now().await;
                self.send_together(company, sender.take()).await;
            }
            _ => {}
        }
        hears.await.unwrap_or(Ok(None))
    }

    async fn send_together(&self, company: Company, calls: Vec<Waiting>) {
        let mut answers = match calls.len() {
            0 | 1 => Ok(Vec::new()),
            _ => self.reserve_all(company, &calls).await,
        }
        .map(Vec::into_iter);
        for call in calls {
            let heard = match &mut answers {
                Ok(replies) => Ok(replies.next()),
                Err(error) => Err(error.clone()),
            };
            drop(call.heard.send(heard));
        }
    }

    /// The answers to the first of the calls, as far as they are plain.
    async fn reserve_all(&self, company: Company, calls: &[Waiting]) -> Result<Vec<Reply>, GateError> {
        let Company { partition, epoch, now_ms } = company;
        let mut keys = vec![self.keys.meta(partition), self.keys.outbox(partition)];
        let mut arguments = self.mutating_in(epoch, now_ms);
        let mut key_counts = Vec::with_capacity(calls.len());
        let mut of_calls = Vec::with_capacity(3 * calls.len());
        for call in calls {
            keys.extend_from_slice(&call.packed.keys);
            key_counts.put_byte(u8::try_from(call.packed.keys.len()).unwrap_or(u8::MAX));
            of_calls.extend_from_slice(&call.packed.arguments);
        }
        arguments.push(key_counts);
        arguments.append(&mut of_calls);
        let known = self.highest_known(partition);
        let reply = self.run(partition, Script::ReserveAll, &keys, &arguments).await?;
        let read = |answer: Value| {
            let (reply, _) = Reply::read(answer, epoch)?;
            self.check_memory(partition, Script::Reserve, &reply, known)?;
            Ok(reply)
        };
        let answers = reply.into_values().into_iter().map(read).collect::<Result<Vec<_>, GateError>>()?;
        if answers.len() > calls.len() {
            return Err(Undecodable("a script's answer").into());
        }
        Ok(answers)
    }
}
