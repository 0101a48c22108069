//! The watch: one look at the whole node, on a connection of its own. It sees the node's clock and how far each cursor
//! lags its outbox.

use std::time::Instant;

use redis::{Pipeline, Value};

use crate::domain::codec::Undecodable;
use crate::domain::ids::{OutboxId, Partition};

use super::Gate;
use super::breaker::BreakerState;
use super::call::{integer, text};
use super::connections::plain_error;
use super::error::GateError;
use super::guard::Heard;
use super::outbox::read_entries;
use super::time_check::{Measurement, STEP_MAX_MS};

/// One outbox, as the watch saw it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutboxState {
    /// Its partition.
    pub partition: Partition,
    /// The cursor that the writer has published; `0-0` when it never has.
    pub booked: OutboxId,
    /// The outbox's last event; `0-0` when it has none.
    pub last: OutboxId,
}

/// It writes nothing. By its header, the server refuses it whenever it would refuse a writing script: without memory or
/// disk, or as a replica.
const WOULD_WRITE: &str = "#!lua\nreturn 1";
/// The same, but a full memory does not refuse it, as it refuses no script that frees memory.
pub(super) const WOULD_FREE: &str = "#!lua flags=allow-oom\nreturn 1";

/// The result of one look.
struct Looked {
    redis_ms: i64,
    after_ms: i64,
    takes_writes: bool,
    standings: Vec<OutboxState>,
}

impl OutboxState {
    /// How many events certainly wait to be booked. After a change of epoch, only those of the new one are known.
    pub fn waiting(&self) -> u64 {
        if self.last <= self.booked {
            return 0;
        }
        if self.last.epoch == self.booked.epoch {
            return self.last.sequence - self.booked.sequence;
        }
        self.last.sequence.saturating_add(1)
    }
}

impl Gate {
    /// Asks for the node's time and the state of all outboxes in one pipeline, and informs the breaker and the check of
    /// the clock. Bounded by the response timeout. `wall_ms` reads the host's clock (unix ms).
    pub async fn look(&self, wall_ms: impl Fn() -> i64) -> Result<Vec<OutboxState>, GateError> {
        let (began, before_ms) = (Instant::now(), self.elapsed_ms());
        let looked = self.look_once().await;
        self.guard.probed(began, looked.is_ok());
        if looked.is_err() && !self.guard.has_measured_time() {
            self.note_redis_time(wall_ms());
        }
        let Looked { redis_ms, after_ms, takes_writes, standings } = looked?;
        self.guard.told_of_writes(takes_writes);
        self.guard.measured(Measurement { redis_ms, before_ms, after_ms }, wall_ms());
        self.note_redis_time(redis_ms);
        Ok(standings)
    }

    async fn look_once(&self) -> Result<Looked, GateError> {
        let mut pipeline = Pipeline::new();
        pipeline.cmd("TIME");
        pipeline.cmd("EVAL").arg(WOULD_WRITE).arg(0);
        for partition in self.partitions() {
            pipeline.cmd("HGET").arg(self.keys.meta(partition)).arg("writer");
            pipeline.cmd("XREVRANGE").arg(self.keys.outbox(partition)).arg(&["+", "-", "COUNT", "1"]);
        }
        let count = 2 + 2 * usize::from(self.options.partitions);
        let mut answers = self.send_watching(&pipeline, count).await?.into_iter();
        let after_ms = self.elapsed_ms();
        let redis_ms = read_time(&answers.next().unwrap_or(Value::Nil))?;
        let takes_writes = answers.next() == Some(Value::Int(1));
        let mut standings = Vec::with_capacity(usize::from(self.options.partitions));
        for partition in self.partitions() {
            match (answers.next(), answers.next()) {
                (Some(booked), Some(last)) => match read_standing(partition, &booked, last) {
                    Ok(standing) => standings.push(standing),
                    // One damaged partition must not close the whole gate; its own calls report the damage.
                    Err(error) => tracing::debug!(%partition, %error, "an outbox could not be looked at"),
                },
                _ => return Err(Undecodable("the answers to a look").into()),
            }
        }
        Ok(Looked { redis_ms, after_ms, takes_writes, standings })
    }

    pub(super) async fn send_watching(
        &self,
        pipeline: &Pipeline,
        count: usize,
    ) -> Result<Vec<Value>, GateError> {
        let answers = tokio::time::timeout(self.patience(), self.watch_link.send_all(pipeline, count)).await;
        let answers = answers.map_err(|_| GateError::Timeout)?.map_err(|error| plain_error(&error))?;
        answers.into_iter().map(served).collect()
    }

    /// The state of the breaker.
    pub fn breaker_state(&self) -> BreakerState {
        self.guard.breaker_state()
    }

    /// Whether Redis took writes at the last look that it answered.
    pub fn takes_writes(&self) -> bool {
        self.guard.takes_writes()
    }

    /// Whether calls may be admitted and holds expired by Redis's clock.
    pub fn trusts_time(&self) -> bool {
        self.guard.trusts_time()
    }

    /// Whether Redis's clock is trusted, and this instance knows it without asking; `wall_ms` is the host's (unix ms).
    pub fn knows_time(&self, wall_ms: i64) -> bool {
        self.guard.knows_time(self.elapsed_ms(), wall_ms)
    }

    /// Whether Redis has said its time since the start.
    pub fn has_measured_time(&self) -> bool {
        self.guard.has_measured_time()
    }

    /// Notes the ledger's clock, read while this host's went from one time to the other (unix ms): while Redis has not
    /// said its time, the host's counts only where both agree.
    pub fn compare_host(&self, ledger_ms: i64, host_ms: (i64, i64)) {
        let (earliest, latest) =
            (host_ms.0.saturating_sub(STEP_MAX_MS), host_ms.1.saturating_add(STEP_MAX_MS));
        self.guard.compared_host((earliest..=latest).contains(&ledger_ms));
    }

    /// How far Redis's clock was ahead of this host's at the last look, at least, in ms.
    pub fn time_difference_ms(&self) -> i64 {
        self.guard.time_difference_ms()
    }

    /// How often Redis's clock came into doubt since the start.
    pub fn time_doubts(&self) -> u64 {
        self.guard.time_doubts()
    }

    /// An operator accepts Redis's clock as it is. Returns whether it was in doubt.
    pub fn accept_time(&self) -> bool {
        self.guard.accept_time()
    }

    /// Resolves when the next call or look is not answered: callers that wait for the gate should stop waiting.
    pub async fn falls_silent(&self) {
        self.guard.falls_silent().await;
    }
}

/// An answer, unless it says that the server cannot serve now; an error of one key alone counts as nothing.
fn served(answer: Value) -> Result<Value, GateError> {
    let answer = answer.extract_error();
    if matches!(Heard::of::<_, ()>(&Ok(answer.as_ref().map_err(Clone::clone))), Heard::Busy) {
        return answer.map_err(|error| plain_error(&error));
    }
    Ok(answer.unwrap_or(Value::Nil))
}

fn read_standing(partition: Partition, booked: &Value, last: Value) -> Result<OutboxState, Undecodable> {
    let booked = match booked {
        Value::Nil => OutboxId::default(),
        value => text(value)?.parse().map_err(|_| Undecodable("a writer's position"))?,
    };
    let last = read_entries(last)?.first().map_or_else(OutboxId::default, |(id, _)| *id);
    Ok(OutboxState { partition, booked, last })
}

/// Reads an answer of TIME as unix ms.
pub(super) fn read_time(answer: &Value) -> Result<i64, Undecodable> {
    let Value::Array(parts) = answer else { return Err(Undecodable("TIME")) };
    let part = |at: usize| parts.get(at).ok_or(Undecodable("TIME")).and_then(integer);
    Ok(part(0)?.saturating_mul(1_000).saturating_add(part(1)? / 1_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[rstest::rstest]
    #[case::nothing("0-0", "0-0", 0)]
    #[case::all_booked("3-7", "3-7", 0)]
    #[case::behind("3-7", "3-12", 5)]
    #[case::never_booked("0-0", "1-0", 1)]
    #[case::a_new_epoch("3-7", "4-4", 5)]
    #[case::an_emptied_outbox("3-7", "0-0", 0)]
    #[case::an_outbox_that_went_back("3-7", "3-2", 0)]
    fn only_what_certainly_waits_is_counted(#[case] booked: &str, #[case] last: &str, #[case] waiting: u64) {
        let partition = Partition::new(0).unwrap();
        let standing =
            OutboxState { partition, booked: booked.parse().unwrap(), last: last.parse().unwrap() };
        assert_eq!(standing.waiting(), waiting);
    }
}
