//! Calls that begin at their time, whether earlier ones are answered or not.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::task::JoinSet;

use super::{CHECK, Call, INSTANCES, LOCAL, PATIENCE, POLICIES};
use crate::support::app::*;
use crate::support::caller::Caller;
use crate::support::wait::wait_for;

/// Phases of a run: before the fault, in it, after it, and when nothing more begins.
const BEFORE: u64 = 0;
pub(super) const FAULT: u64 = 1;
pub(super) const AFTER: u64 = 2;
pub(super) const END: u64 = 3;
/// Of how many calls under shares one begins before the fault: what is shared out is not to be used up then.
const SPARED: usize = 40;
/// The numbers of the first calls, beyond those of any stream.
const FIRST: usize = 1_000_000_000;

/// The phase of a run, and how many calls were answered in it.
#[derive(Debug, Default)]
pub(super) struct Run {
    phase: AtomicU64,
    answered: AtomicUsize,
}

impl Run {
    fn phase(&self) -> u64 {
        self.phase.load(Ordering::SeqCst)
    }

    pub(super) fn enter(&self, phase: u64) {
        self.phase.store(phase, Ordering::SeqCst);
    }

    /// Waits until calls of all streams are answered one after the other.
    pub(super) async fn is_under_way(&self) {
        let enough = 4 * Stream::all().count();
        wait_for("calls are answered", PATIENCE, async || {
            (self.answered.load(Ordering::SeqCst) >= enough).then_some(())
        })
        .await;
    }
}

/// Calls of one kind under the limits of one policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stream {
    pub(super) call: Call,
    /// The place of its policy.
    pub(super) policy: usize,
}

impl Stream {
    /// Those that begin at times of their own.
    pub(super) fn all() -> impl Iterator<Item = Self> {
        let of_call = |call| (0..POLICIES.len()).map(move |policy| Self { call, policy });
        Call::BEGUN.into_iter().flat_map(of_call)
    }

    /// Whether what this call holds is consumed, and not released. Of shares all is, so that none of it comes back.
    pub(super) fn consumes(self, number: usize) -> bool {
        self.policy == LOCAL || number.is_multiple_of(2)
    }

    /// The call of this number.
    pub(super) async fn ask(self, caller: &Caller, number: usize) -> Answered {
        let policy = POLICIES[self.policy];
        let (key, body) = (format!("{}-{number}", self.call.meter(policy)), self.call.body(policy));
        match self.call {
            Call::Check => caller.post(CHECK, body).await,
            Call::Use => caller.post_keyed(USAGE, &key, body).await,
            _ => caller.post_keyed(RESERVATIONS, &key, body).await,
        }
    }

    /// Ends the reservation of the call of this number.
    pub(super) async fn end(self, caller: &Caller, number: usize, id: &str) -> Answered {
        match self.consumes(number) {
            true => caller.post(&reservation(id, "consume"), json!({ "amount": "1" })).await,
            false => caller.post(&reservation(id, "release"), json!({})).await,
        }
    }
}

/// An answer, and the phases in which the call began and ended.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    pub(super) stream: Stream,
    pub(super) number: usize,
    /// Of the reservation or usage.
    pub(super) id: String,
    pub(super) status: u16,
    pub(super) admitted: bool,
    pub(super) degraded: bool,
    /// Whether it says when to come back.
    pub(super) says_when: bool,
    pub(super) phases: (u64, u64),
    pub(super) took: Duration,
    pub(super) ended: Instant,
}

impl Seen {
    /// `began`: when it was to begin, and in which phase it did.
    fn of(
        stream: Stream,
        number: usize,
        answer: &Answered,
        began: (tokio::time::Instant, u64),
        run: &Run,
    ) -> Self {
        run.answered.fetch_add(1, Ordering::SeqCst);
        let admitted = match stream.call {
            Call::Use | Call::Hold => answer.status == 201,
            Call::End => answer.status == 200,
            Call::Check => answer.status == 200 && answer.body["allowed"] == json!(true),
        };
        Self {
            stream,
            number,
            id: answer.text("/id").to_owned(),
            status: answer.status,
            admitted,
            degraded: answer.body["degraded"] == json!(true),
            says_when: !answer.header("retry-after").is_empty(),
            phases: (began.1, run.phase()),
            took: began.0.elapsed(),
            ended: Instant::now(),
        }
    }

    /// Whether it began in the fault, whenever it ended.
    pub(super) fn began_within(&self) -> bool {
        self.phases.0 == FAULT
    }

    /// Whether it began after the fault, before each instance decided again.
    pub(super) fn began_after(&self) -> bool {
        self.phases.0 == AFTER
    }

    /// Whether it was in flight when the fault began.
    pub(super) fn was_in_flight(&self) -> bool {
        self.phases.0 == BEFORE && self.phases.1 > BEFORE
    }
}

/// One call of a stream, and the end of what it holds.
async fn one(
    caller: Caller,
    stream: Stream,
    number: usize,
    began: (tokio::time::Instant, u64),
    run: Arc<Run>,
) -> Vec<Seen> {
    let answer = stream.ask(&caller, number).await;
    let first = Seen::of(stream, number, &answer, began, &run);
    if stream.call != Call::Hold || !first.admitted {
        return vec![first];
    }
    let began = (tokio::time::Instant::now(), run.phase());
    let answer = stream.end(&caller, number, &first.id).await;
    let end = Seen::of(Stream { call: Call::End, ..stream }, number, &answer, began, &run);
    vec![first, end]
}

/// Has each instance see work of which it is to have a share.
pub(super) async fn first_calls(callers: &[Caller; INSTANCES], run: &Arc<Run>) -> Vec<Seen> {
    let mut seen = Vec::new();
    for (instance, caller) in callers.iter().enumerate() {
        for stream in Stream::all().filter(|stream| stream.policy == LOCAL) {
            let mut number = FIRST + instance;
            wait_for("it is admitted", PATIENCE, async || {
                let began = (tokio::time::Instant::now(), BEFORE);
                let answers = one(caller.clone(), stream, number, began, run.clone()).await;
                let is_admitted = answers.iter().all(|each| each.admitted);
                seen.extend(answers);
                number += INSTANCES;
                is_admitted.then_some(())
            })
            .await;
        }
    }
    seen
}

/// Calls of a stream, each so long after the last one began. They are timed from when they were to begin.
pub(super) async fn load(
    callers: [Caller; INSTANCES],
    stream: Stream,
    each: Duration,
    run: Arc<Run>,
) -> Vec<Seen> {
    let mut at = tokio::time::Instant::now();
    let (mut number, mut calls) = (0, JoinSet::new());
    for turn in 0_usize.. {
        tokio::time::sleep_until(at).await;
        let phase = run.phase();
        if phase == END {
            break;
        }
        if phase != BEFORE || stream.policy != LOCAL || turn.is_multiple_of(SPARED) {
            let caller = callers[number % INSTANCES].clone();
            calls.spawn(one(caller, stream, number, (at, phase), run.clone()));
            number += 1;
        }
        at += each;
    }
    calls.join_all().await.concat()
}

/// How late an instance without that load answers a call that needs Postgres but not Redis, at the worst: until the
/// fault ends, and after that. It is timed from when it was to begin.
pub(super) async fn noise(caller: Caller, run: Arc<Run>) -> [Duration; 2] {
    const NAP: Duration = Duration::from_millis(20);
    let mut late = [Duration::ZERO; 2];
    loop {
        let (began, phase) = (Instant::now(), run.phase());
        if phase == END {
            return late;
        }
        tokio::time::sleep(NAP).await;
        caller.get("/v1/admin/jobs").await.expect(200);
        let late = &mut late[usize::from(phase == AFTER)];
        *late = (*late).max(began.elapsed() - NAP);
    }
}
