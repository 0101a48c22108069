//! Detects a Postgres that is frozen or cut off: one question finds out for all callers, and none of them goes on
//! waiting.

use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use diesel_async::SimpleAsyncConnection;
use futures::FutureExt;
use futures::future::{Either, select};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use super::LedgerError;
use super::connection::{Connections, discard};

/// A call that needs Postgres waits no longer than this for a silent one.
const SILENCE_MAX: Duration = Duration::from_secs(2);

/// Postgres is silent once it has answered nothing for so long, neither the question nor any work.
const QUIET_MAX: Duration = Duration::from_secs(1);

/// The pause between two questions to a server that refuses them.
const PAUSE: Duration = Duration::from_millis(100);

/// What is known about Postgres.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hearing {
    /// It answers, or nobody has waited long enough to doubt it.
    Answers,
    /// The question was sent.
    Asked,
    /// It did not answer the question; the question is repeated until it does.
    Silent,
}

/// Asks Postgres whether it answers, on behalf of everyone who waits.
pub(super) struct Silence {
    /// One connection that carries only the question.
    probe: Connections,
    runtime: Handle,
    known: watch::Sender<Hearing>,
    began: Instant,
    /// When it last answered anybody's work, in ms since `began`.
    heard_ms: AtomicU64,
}

impl Silence {
    /// Sends no question before somebody waits.
    pub(super) fn new(probe: Connections, runtime: Handle) -> Self {
        let (known, began) = (watch::Sender::new(Hearing::Answers), Instant::now());
        Self { probe, runtime, known, began, heard_ms: AtomicU64::new(0) }
    }

    /// Connects now: on a busy machine a new connection may take longer than the question may.
    pub(super) async fn prepare(&self) {
        drop(self.probe.get().await);
    }

    /// Waits for work as long as Postgres answers anybody: work may take its time. A call with several waits in a row
    /// waits for a silent server only once.
    ///
    /// Errors: [`LedgerError::Silent`].
    pub(super) async fn unless_silent<T>(
        self: &Arc<Self>,
        work: impl Future<Output = T>,
    ) -> Result<T, LedgerError> {
        let mut work = pin!(work);
        let mut known = self.known.subscribe();
        let mut silent = pin!(async move {
            known.wait_for(|hearing| *hearing == Hearing::Silent).map(drop).await;
        });
        loop {
            tokio::select! {
                biased;
                done = &mut work => return Ok(done),
                () = &mut silent => return Err(LedgerError::Silent),
                () = sleep(SILENCE_MAX - QUIET_MAX) => self.ask(),
            }
        }
    }

    /// Starts the question, unless it is being asked.
    fn ask(self: &Arc<Self>) {
        let is_first = self.known.send_if_modified(|hearing| {
            let is_first = *hearing == Hearing::Answers;
            *hearing = if is_first { Hearing::Asked } else { *hearing };
            is_first
        });
        if is_first {
            self.runtime.spawn(ask_until_answered(Arc::downgrade(self)));
        }
    }

    /// Records that Postgres has answered somebody's work: on a busy machine the question may be what takes long.
    pub(super) fn heard(&self) {
        let now_ms = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.heard_ms.fetch_max(now_ms, Ordering::Relaxed);
    }

    fn last_heard(&self) -> Instant {
        self.began + Duration::from_millis(self.heard_ms.load(Ordering::Relaxed))
    }

    /// Asks once, and marks Postgres as silent when no answer comes in time. A late answer still counts as one.
    async fn answers(&self, first_asked: Instant) -> bool {
        match select(pin!(self.question()), pin!(self.quiet(first_asked))).await {
            Either::Left((answers, _)) => {
                if !answers && self.last_heard() < first_asked {
                    self.known.send_replace(Hearing::Silent);
                }
                answers
            }
            Either::Right(((), question)) => {
                self.known.send_replace(Hearing::Silent);
                question.await
            }
        }
    }

    async fn question(&self) -> bool {
        let given_up = Instant::now() + SILENCE_MAX;
        let Ok(Ok(mut connection)) = timeout_at(given_up, self.probe.get()).await else {
            return false;
        };
        let answers =
            timeout_at(given_up, connection.batch_execute("SELECT 1")).await.is_ok_and(|said| said.is_ok());
        if !answers {
            discard(connection);
        }
        answers
    }

    /// Waits until no work has been answered for `QUIET_MAX`, counted from this instant at the earliest.
    async fn quiet(&self, from: Instant) {
        loop {
            let until = self.last_heard().max(from) + QUIET_MAX;
            if until <= Instant::now() {
                return;
            }
            sleep_until(until).await;
        }
    }
}

/// Asks until Postgres answers, or until nobody is left to wait for it.
async fn ask_until_answered(silence: Weak<Silence>) {
    let first_asked = Instant::now();
    while let Some(silence) = silence.upgrade() {
        if silence.answers(first_asked).await {
            silence.known.send_replace(Hearing::Answers);
            return;
        }
        drop(silence);
        sleep(PAUSE).await;
    }
}
