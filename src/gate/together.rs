//! Sends reserves and checks that are asked for at once, such as those of a batch: those of one partition in one script
//! call.

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

/// The most calls in one: Redis does nothing else meanwhile.
pub(super) const CALLS_MAX: usize = 16;

/// How many values a check's answer has.
const CHECK_VALUES: usize = 6;

tokio::task_local! {
    static TOGETHER: Arc<Together>;
}

/// A reserve or a check, packed for its script.
pub(super) struct Packed {
    /// Of a reserve those of reservation, due list and states; of a check those of its counters.
    pub(super) keys: Vec<String>,
    /// Of a reserve three: front, call, lines and body. Of a check one.
    pub(super) arguments: Vec<Vec<u8>>,
}

/// What calls must have in common to be sent together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Company {
    /// The partition whose memory they change.
    pub(super) partition: Partition,
    /// Their expected epoch.
    pub(super) epoch: Epoch,
    /// Their time.
    pub(super) now_ms: Option<i64>,
    /// The script that decides one of them.
    pub(super) script: Script,
}

/// The script's answer to one call; none where the call must be sent alone.
type Heard = Result<Option<Reply>, GateError>;

struct Waiting {
    packed: Packed,
    heard: oneshot::Sender<Heard>,
}

/// The calls of one piece of work that wait for each other.
#[derive(Default)]
struct Together(Mutex<HashMap<Company, Vec<Waiting>>>);

impl Together {
    /// Adds a call; returns how many wait now.
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

/// Sends all waiting calls. When it is dropped before, each of them is sent alone.
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
    /// Does work in which reserves of one partition that are asked for at once are sent in one script call, and so are
    /// checks. They are decided in the order in which they were asked for, each by itself.
    pub async fn together<T>(work: impl Future<Output = T>) -> T {
        TOGETHER.scope(Arc::default(), work).await
    }

    /// Whether the current task is part of such work.
    pub(super) fn has_company() -> bool {
        TOGETHER.try_with(|_| ()).is_ok()
    }

    /// The script's answer to a call that is sent with others; none where it must be sent alone.
    pub(super) async fn run_together(&self, company: Company, packed: Packed) -> Heard {
        let Ok(together) = TOGETHER.try_with(Arc::clone) else { return Ok(None) };
        let (heard, hears) = oneshot::channel();
        match together.add(company, Waiting { packed, heard }) {
            CALLS_MAX => {
                self.send_together(company, together.take(company)).await;
                // Those before it go first, where the rest is sent alone.
                tokio::task::yield_now().await;
            }
            1 => {
                let sender = Sender(&together, company);
                // The other calls of the same work are added meanwhile.
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
            _ if company.script == Script::Reserve => self.reserve_all(company, &calls).await,
            _ => self.check_all(company, &calls).await,
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

    /// The answers to the checks; none where one of them fails, which must fail alone.
    async fn check_all(&self, company: Company, calls: &[Waiting]) -> Result<Vec<Reply>, GateError> {
        let Company { partition, epoch, now_ms, script } = company;
        let mut keys = vec![self.keys.meta(partition)];
        let mut arguments = self.mutating_in(epoch, now_ms);
        let mut shape = vec![0];
        let mut of_calls = Vec::with_capacity(calls.len());
        for call in calls {
            keys.extend_from_slice(&call.packed.keys);
            shape.put_byte(u8::try_from(call.packed.keys.len()).unwrap_or(u8::MAX));
            of_calls.extend_from_slice(&call.packed.arguments);
        }
        arguments.push(shape);
        arguments.append(&mut of_calls);
        let reply = match self.run(partition, script, &keys, &arguments).await {
            // It failed before its first write.
            Err(GateError::Script { .. }) => return Ok(Vec::new()),
            answer => answer?,
        };
        let answers = reply.apart(calls.len(), CHECK_VALUES);
        if answers.len() == calls.len() { Ok(answers) } else { Err(Undecodable("an answer of check").into()) }
    }

    /// The answers to the first of the calls, as far as the plain path decided them.
    async fn reserve_all(&self, company: Company, calls: &[Waiting]) -> Result<Vec<Reply>, GateError> {
        let Company { partition, epoch, now_ms, .. } = company;
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
