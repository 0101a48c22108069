//! Mutations run to their end, even if their caller hangs up or stops waiting.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::watch;
use tracing::Instrument;

use super::problem::{Code, Problem};

/// Runs a mutation in its caller's task while the caller waits, hands it to the runtime that outlives the servers when
/// the caller leaves, and counts the running ones.
pub(super) struct Mutations {
    runtime: Handle,
    running: watch::Sender<usize>,
    running_max: usize,
    request_timeout: Duration,
}

impl Mutations {
    /// Must be called within the runtime that outlives the servers. A caller waits at most `request_timeout` for an
    /// answer. At most `running_max` run at once: otherwise mutations of callers that left could pile up.
    pub(super) fn new(request_timeout: Duration, running_max: usize) -> Self {
        Self { runtime: Handle::current(), running: watch::Sender::new(0), running_max, request_timeout }
    }

    /// Begins `work` at once and waits for its answer; the work goes on if the caller leaves. It is boxed because it is
    /// large and would be copied at each move.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: Pin<Box<dyn Future<Output = T> + Send>>,
    ) -> Result<T, Problem> {
        let Some(running) = Running::begin(self.running.clone(), self.running_max) else {
            let detail = "Too many calls are running; repeat the call.";
            return Err(Problem::new(Code::Overloaded, detail).retry_after_ms(1_000));
        };
        let attached = Attached { work: Some(work), running: Some(running), runtime: &self.runtime };
        match tokio::time::timeout(self.request_timeout, attached).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(_)) => {
                tracing::error!("a mutation broke off");
                Err(Problem::new(Code::Internal, "The service failed to answer; the fault has been logged."))
            }
            Err(_) => {
                let detail = "The call is still running; repeat it with the same key to learn its answer.";
                Err(Problem::new(Code::Overloaded, detail).retry_after_ms(1_000))
            }
        }
    }

    /// Waits until no mutation runs, at most for `patience`; returns whether none runs.
    pub(super) async fn idle(&self, patience: Duration) -> bool {
        let mut running = self.running.subscribe();
        let idle = running.wait_for(|count| *count == 0);
        tokio::time::timeout(patience, idle).await.is_ok()
    }
}

/// Work that its waiter polls, without a task of its own: a switch between threads costs more than most calls. Dropped
/// before its end, it goes on in the runtime.
struct Attached<'a, T: Send + 'static> {
    work: Option<Pin<Box<dyn Future<Output = T> + Send>>>,
    running: Option<Running>,
    runtime: &'a Handle,
}

impl<T: Send + 'static> Future for Attached<'_, T> {
    /// The answer, or that the work panicked.
    type Output = Result<T, Panicked>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(work) = &mut self.work else { return Poll::Ready(Err(Panicked)) };
        let polled = std::panic::catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(context)));
        if let Ok(Poll::Pending) = polled {
            return Poll::Pending;
        }
        self.work = None;
        self.running = None;
        match polled {
            Ok(polled) => polled.map(Ok),
            Err(_) => Poll::Ready(Err(Panicked)),
        }
    }
}

impl<T: Send + 'static> Drop for Attached<'_, T> {
    fn drop(&mut self) {
        let Some(rest) = self.work.take() else { return };
        let running = self.running.take();
        let rest = async move {
            // Nobody waits for its answer any more.
            drop(rest.await);
            drop(running);
        };
        // Boxed, so that all are one type of task: each type would be compiled by itself.
        let rest: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(rest);
        self.runtime.spawn(rest.in_current_span());
    }
}

/// The work panicked.
struct Panicked;

/// Counts one running mutation for as long as it lives, panics included.
struct Running(watch::Sender<usize>);

impl Running {
    /// Counts one more; none if the most are running already.
    fn begin(count: watch::Sender<usize>, running_max: usize) -> Option<Self> {
        let began = count.send_if_modified(|running| {
            let has_room = *running < running_max;
            *running += usize::from(has_room);
            has_room
        });
        // Made only after counting: its drop counts down.
        began.then(|| Self(count))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.send_modify(|running| *running -= 1);
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(10);

    #[tokio::test]
    async fn a_mutation_ends_although_its_caller_hung_up() {
        let mutations = Mutations::new(PATIENCE, 1);
        let (go, gone) = oneshot::channel::<()>();
        let (done, ended) = oneshot::channel();
        let mut call = Box::pin(mutations.run(Box::pin(async move {
            gone.await.ok();
            done.send(()).ok();
        })));
        assert!(futures::poll!(&mut call).is_pending());
        drop(call);
        let refused = mutations.run(Box::pin(async {})).await.unwrap_err();
        assert_eq!(refused.code(), "overloaded", "it runs on, and one at once is the most");
        assert!(!mutations.idle(Duration::ZERO).await);
        go.send(()).unwrap();
        ended.await.unwrap();
        assert!(mutations.idle(PATIENCE).await);
    }

    #[tokio::test]
    async fn a_caller_does_not_wait_for_ever() {
        let mutations = Mutations::new(Duration::from_millis(1), 1);
        let (go, gone) = oneshot::channel::<()>();
        let problem = mutations.run(Box::pin(async move { gone.await.ok() })).await.unwrap_err();
        assert_eq!(problem.code(), "overloaded");
        go.send(()).unwrap();
        assert!(mutations.idle(PATIENCE).await);
    }

    #[tokio::test]
    async fn a_mutation_that_panics_is_a_500_and_no_longer_runs() {
        let mutations = Mutations::new(PATIENCE, 1);
        let broken: Result<(), Problem> = mutations.run(Box::pin(async { panic!("a fault of ours") })).await;
        let problem = broken.unwrap_err();
        assert_eq!(problem.code(), "internal");
        assert!(mutations.idle(PATIENCE).await);
    }
}
