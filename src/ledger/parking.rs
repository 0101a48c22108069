//! Parks calls together. While the gate is away every call waits for its transaction, and most of that is the round
//! trips and the commit, which take as long for a hundred calls as for one.

use std::collections::{HashMap, HashSet, VecDeque};
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use diesel::prelude::*;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use futures::FutureExt;
use tokio::sync::{Semaphore, oneshot};

use super::connection::BEGIN_BOOKING;
use super::notices::Notice;
use super::parked::{self as rows, CONFLICT, KnownReservation, NOTICE, NewParked, ParkedRow};
use super::schema::parked;
use super::{Ledger, LedgerError, instant, key_filters, notices, passed, reservations};
use crate::domain::ids::{ReservationId, TenantId};

/// How many calls a transaction parks at the most.
const TOGETHER_MAX: usize = 100;
/// How many transactions park at once: while one is under way, calls gather for the next.
const AT_ONCE: usize = 2;

/// How many calls wait at once for a lock that another transaction has.
const WAIT_FOR_LOCKS: usize = 2;

/// Why a call was not parked.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{error}")]
pub struct NotParked {
    /// What went wrong.
    pub error: LedgerError,
    /// Whether it may be parked all the same.
    pub may_be_parked: bool,
}

impl From<NotParked> for LedgerError {
    fn from(not_parked: NotParked) -> Self {
        not_parked.error
    }
}

/// Calls that are to be parked.
pub(super) struct ParkingQueue {
    waiting: Mutex<VecDeque<Box<dyn ToPark>>>,
    turns: Semaphore,
    turns_alone: Semaphore,
}

/// What a transaction does about a reservation that another has locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Locking {
    /// Leaves it out: nothing waits for the other one but its own call.
    Skip,
    /// Waits for it.
    Wait,
}

/// The calls of a transaction.
#[derive(Default)]
struct Batch {
    calls: Vec<Box<dyn ToPark>>,
    /// Those whose reservations another transaction has locked.
    skipped: Vec<Box<dyn ToPark>>,
}

impl Default for ParkingQueue {
    fn default() -> Self {
        let (turns, turns_alone) = (Semaphore::new(AT_ONCE), Semaphore::new(WAIT_FOR_LOCKS));
        Self { waiting: Mutex::default(), turns, turns_alone }
    }
}

impl ParkingQueue {
    /// Takes the next calls, of one reservation only the first.
    fn next(&self) -> Vec<Box<dyn ToPark>> {
        let mut waiting = lock(&self.waiting);
        let (mut taken, mut later) = (Vec::new(), VecDeque::new());
        let mut seen = HashSet::new();
        while taken.len() < TOGETHER_MAX {
            let Some(call) = waiting.pop_front() else { break };
            if seen.insert(call.id()) { taken.push(call) } else { later.push_back(call) }
        }
        later.append(&mut waiting);
        *waiting = later;
        taken
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A call that is to be parked, and its caller who waits.
trait ToPark: Send {
    fn id(&self) -> ReservationId;
    /// Decides what is parked, by all that the ledger has. A transaction that failed decides again.
    fn decide(&mut self, known: &KnownReservation, not_before_ms: i64) -> Option<NewParked>;
    /// Answers with the last decision, once its transaction has ended.
    fn answer(self: Box<Self>, ended: Result<(), LedgerError>);
}

struct Deciding<T, D> {
    id: ReservationId,
    decide: D,
    decided: Option<T>,
    answer: oneshot::Sender<Result<T, NotParked>>,
}

impl<T, D> ToPark for Deciding<T, D>
where
    T: Send,
    D: FnMut(&KnownReservation, i64) -> (Option<NewParked>, T) + Send,
{
    fn id(&self) -> ReservationId {
        self.id
    }

    fn decide(&mut self, known: &KnownReservation, not_before_ms: i64) -> Option<NewParked> {
        let (parked, decided) = (self.decide)(known, not_before_ms);
        self.decided = Some(decided);
        parked
    }

    fn answer(self: Box<Self>, ended: Result<(), LedgerError>) {
        let Self { decided, answer, .. } = *self;
        // What is not decided is not written; what breaks a rule of the ledger is taken back.
        let is_written = |error: &LedgerError| decided.is_some() && !matches!(error, LedgerError::Refused(_));
        let ended = ended.map_err(|error| NotParked { may_be_parked: is_written(&error), error });
        // Nobody listens where the caller has gone away; the call is parked all the same.
        let _ = answer.send(ended.and_then(|()| decided.ok_or_else(not_decided)));
    }
}

fn not_decided() -> NotParked {
    let error = LedgerError::Unavailable("the call was not decided".into());
    NotParked { error, may_be_parked: true }
}

impl Ledger {
    /// Parks a call of a reservation if `decide` says so. It gets all that the ledger has of the reservation, and
    /// nobody else decides about that reservation meanwhile; and the instant (unix ms) before which no call is taken
    /// any more, because periods are closed as of it. Calls that come while others are being parked share one
    /// transaction. When the caller goes away, the call is parked all the same.
    ///
    /// Errors: those of the database, after which it may be parked or not.
    pub async fn park<T: Send + 'static>(
        &self,
        id: ReservationId,
        decide: impl FnMut(&KnownReservation, i64) -> (Option<NewParked>, T) + Send + 'static,
    ) -> Result<T, NotParked> {
        let (answer, answered) = oneshot::channel();
        lock(&self.shared.to_park.waiting).push_back(Box::new(Deciding {
            id,
            decide,
            decided: None,
            answer,
        }));
        let ledger = self.clone();
        // Each call brings a task, and each task takes at least one call, so none is left behind.
        self.shared.runtime.spawn(async move {
            let _turn = ledger.shared.to_park.turns.acquire().await;
            let batch = ledger.shared.to_park.next();
            if !batch.is_empty() {
                ledger.park_together(batch, Locking::Skip).await;
            }
        });
        answered.await.unwrap_or_else(|_| Err(not_decided()))
    }

    /// How many calls wait for their turn to be parked or read.
    pub fn calls_to_park(&self) -> usize {
        lock(&self.shared.to_park.waiting).len()
    }

    /// What the ledger has of a reservation, read together with what others ask and park: for calls of which many come
    /// at once.
    pub async fn known_together(&self, id: ReservationId) -> Result<KnownReservation, LedgerError> {
        Ok(self.park(id, |known, _| (None, known.clone())).await?)
    }

    async fn park_together(&self, calls: Vec<Box<dyn ToPark>>, locking: Locking) {
        let batch = Arc::new(Mutex::new(Batch { calls, skipped: Vec::new() }));
        let deciding = batch.clone();
        let ended = self
            .transact_here(BEGIN_BOOKING, move |connection| park_all(connection, deciding, locking).boxed())
            .await;
        let Batch { calls, skipped } = mem::take(&mut *lock(&batch));
        skipped.into_iter().for_each(|call| self.park_alone(call));
        match ended {
            // One call that cannot be parked is no reason to refuse the others.
            Err(error) if calls.len() > 1 && !error.is_transient() => {
                for call in calls {
                    Box::pin(self.park_together(vec![call], Locking::Skip)).await;
                }
            }
            ended => calls.into_iter().for_each(|call| call.answer(ended.clone())),
        }
    }

    /// Parks a call once another transaction has left its reservation.
    fn park_alone(&self, call: Box<dyn ToPark>) {
        let ledger = self.clone();
        self.shared.runtime.spawn(async move {
            let _turn = ledger.shared.to_park.turns_alone.acquire().await;
            ledger.park_together(vec![call], Locking::Wait).await;
        });
    }
}

async fn park_all(
    connection: &mut AsyncPgConnection,
    batch: Arc<Mutex<Batch>>,
    locking: Locking,
) -> Result<(), LedgerError> {
    let ids: Vec<ReservationId> = lock(&batch).calls.iter().map(|call| call.id()).collect();
    match locking {
        Locking::Skip => {
            let locked = rows::lock_free(connection, &ids).await?;
            let mut batch = lock(&batch);
            let (skipped, calls) =
                mem::take(&mut batch.calls).into_iter().partition(|call| locked.contains(&call.id()));
            *batch = Batch { calls, skipped };
        }
        Locking::Wait => {
            for id in ids {
                rows::lock(connection, id).await?;
            }
        }
    }
    let ids: Vec<ReservationId> = lock(&batch).calls.iter().map(|call| call.id()).collect();
    let passed = passed::read(connection, &ids.iter().map(|id| id.partition()).collect()).await?;
    let known = known(connection, &ids).await?;
    let decided: Vec<(ReservationId, NewParked)> = lock(&batch)
        .calls
        .iter_mut()
        .zip(&known)
        .filter_map(|(call, known)| {
            let id = call.id();
            let not_before_ms = passed.get(&id.partition()).copied().unwrap_or(i64::MIN);
            Some((id, call.decide(known, not_before_ms)?))
        })
        .collect();
    insert(connection, &decided).await
}

/// What the ledger has of these reservations, in their order.
async fn known(
    connection: &mut AsyncPgConnection,
    ids: &[ReservationId],
) -> Result<Vec<KnownReservation>, LedgerError> {
    let booked = reservations::read_rows(connection, ids).await?;
    let calls = parked::table
        .select(ParkedRow::as_select())
        .filter(parked::reservation_id.eq_any(ids))
        .filter(parked::state.ne(CONFLICT))
        .order(parked::number);
    let mut booked: HashMap<_, _> = booked.into_iter().map(|row| (row.id, row)).collect();
    let mut parked: HashMap<_, Vec<ParkedRow>> = HashMap::new();
    for call in calls.load(connection).await? {
        parked.entry(call.reservation).or_default().push(call);
    }
    let known = |id: &ReservationId| KnownReservation {
        row: booked.remove(id),
        parked: parked.remove(id).unwrap_or_default(),
    };
    Ok(ids.iter().map(known).collect())
}

/// Parks these calls, and announces them.
pub(super) async fn insert(
    connection: &mut AsyncPgConnection,
    calls: &[(ReservationId, NewParked)],
) -> Result<(), LedgerError> {
    if calls.is_empty() {
        return Ok(());
    }
    let row = |(id, call): &(ReservationId, NewParked)| {
        Ok((
            parked::tenant.eq(call.tenant.clone()),
            parked::partition.eq(id.partition()),
            parked::reservation_id.eq(*id),
            parked::call.eq(call.call),
            parked::taken_at.eq(instant::from_ms(call.taken_at_ms)?),
            parked::payload.eq(call.payload.clone()),
            parked::fingerprint.eq(call.fingerprint),
        ))
    };
    let values: Vec<_> = calls.iter().map(row).collect::<Result<_, LedgerError>>()?;
    diesel::insert_into(parked::table).values(values).execute(connection).await?;
    let admitted = calls.iter().filter(|(_, call)| call.fingerprint.is_some());
    let admitted: Vec<ReservationId> = admitted.map(|(id, _)| *id).collect();
    key_filters::add(connection, &admitted).await?;
    let tenants: HashSet<&TenantId> = calls.iter().map(|(_, call)| &call.tenant).collect();
    let notice = |tenant: &TenantId| Notice { kind: NOTICE.to_owned(), id: tenant.to_string(), version: 0 };
    notices::tell_all(connection, tenants.into_iter().map(notice).collect()).await
}
