//! Whether Postgres answers anybody: nobody waits for a server that is frozen or cut off, and what one has found out all know.

use std::sync::{Arc, Weak};
use std::time::Duration;

use diesel_async::SimpleAsyncConnection;
use futures::FutureExt;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use super::LedgerError;
use super::connection::{Connections, discard};

/// A call that needs Postgres waits no longer for one that says nothing.
const SILENCE_MAX: Duration = Duration::from_secs(2);

/// Between two questions to a server that refuses them.
const PAUSE: Duration = Duration::from_millis(100);

/// What is known of Postgres.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hearing {
    /// It answers, or nobody has waited long enough to doubt it.
    Answers,
    /// It is being asked.
    Asked,
    /// It was asked and said nothing; it is asked on until it does.
    Silent,
}

/// Asks Postgres whether it answers, for all who wait.
pub(super) struct Silence {
    /// One connection that carries nothing but the question.
    probe: Connections,
    runtime: Handle,
    known: watch::Sender<Hearing>,
}

impl Silence {
    /// Nothing is asked before somebody waits.
    pub(super) fn new(probe: Connections, runtime: Handle) -> Self {
        Self { probe, runtime, known: watch::Sender::new(Hearing::Answers) }
    }

    /// Connects now: on a busy machine a new connection may take longer than the question may.
    pub(super) async fn prepare(&self) {
        drop(self.probe.get().await);
    }

    /// Waits as long as Postgres answers anybody: work may take its time. However many waits a call makes in a row, the
    /// silence is waited for once.
    ///
    /// Errors: [`LedgerError::Silent`].
    pub(super) async fn unless_silent<T>(
        self: &Arc<Self>,
        work: impl Future<Output = T>,
    ) -> Result<T, LedgerError> {
        let mut work = std::pin::pin!(work);
        let mut known = self.known.subscribe();
        let mut silent = std::pin::pin!(async move {
            known.wait_for(|hearing| *hearing == Hearing::Silent).map(drop).await;
        });
        loop {
            tokio::select! {
                biased;
                done = &mut work => return Ok(done),
                () = &mut silent => return Err(LedgerError::Silent),
                () = tokio::time::sleep(SILENCE_MAX / 2) => self.ask(),
            }
        }
    }

    /// Begins to ask, unless somebody does.
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

    async fn answers_within(&self, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        let Ok(Ok(mut connection)) = timeout_at(deadline, self.probe.get()).await else {
            return false;
        };
        let answers =
            timeout_at(deadline, connection.batch_execute("SELECT 1")).await.is_ok_and(|said| said.is_ok());
        if !answers {
            discard(connection);
        }
        answers
    }
}

/// Asks until Postgres answers, or nobody is left who could wait for it.
async fn ask_until_answered(silence: Weak<Silence>) {
    while let Some(silence) = silence.upgrade() {
        if silence.answers_within(SILENCE_MAX / 2).await {
            silence.known.send_replace(Hearing::Answers);
            return;
        }
        silence.known.send_replace(Hearing::Silent);
        drop(silence);
        tokio::time::sleep(PAUSE).await;
    }
}
