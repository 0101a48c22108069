//! Reservations: the durable state machine, one row for every booked operation.

use super::{Ledger, LedgerError};
use crate::domain::amount::Units;
use crate::domain::ids::{MeterId, OutboxId, ReservationId, Subject, TenantId};
use crate::domain::reservation::{Record, ReservationState};

/// A reservation as it is booked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReservationRow {
    /// Which one.
    pub id: ReservationId,
    /// Whose.
    pub tenant: TenantId,
    /// Its whole record; the metadata is in its body.
    pub record: Record,
    /// Where it stands.
    pub state: ReservationState,
    /// The ordinal of its last booked change.
    pub step: u32,
    /// Its last booked event.
    pub last_event: OutboxId,
    /// Per line what a `cap` kept uncharged; empty when nothing was.
    pub uncharged: Vec<Units>,
    /// Whether an event of it waits in quarantine, so that the row is behind.
    pub quarantined: bool,
    /// When it was resolved (gate time, unix ms).
    pub resolved_at_ms: Option<i64>,
}

/// Whether an event is in the books.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Booked {
    /// It is.
    Yes,
    /// Not yet.
    NotYet,
    /// It, or an earlier one of its reservation, waits in quarantine.
    Quarantined,
}

/// Which reservations of a tenant to list.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReservationFilter {
    /// Only in this state.
    pub state: Option<ReservationState>,
    /// Only those naming this subject.
    pub subject: Option<Subject>,
    /// Only those with a line of this meter.
    pub meter: Option<MeterId>,
}

/// A place in a list of reservations, newest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReservationPlace {
    /// When the reservation was made (unix ms).
    pub born_at_ms: i64,
    /// Which one.
    pub id: ReservationId,
}

impl Ledger {
    /// A reservation by its id, of whichever tenant: the caller compares the tenant before it tells anything.
    pub async fn reservation(&self, id: ReservationId) -> Result<Option<ReservationRow>, LedgerError> {
        pending()
    }

    /// Whether `event`, the `step`-th change of a reservation, is in the books: the cursor decides within the event's
    /// epoch, the reservation's row after it.
    pub async fn is_booked(
        &self,
        id: ReservationId,
        step: u32,
        event: OutboxId,
    ) -> Result<Booked, LedgerError> {
        pending()
    }

    /// A tenant's reservations, newest first, at most `limit`, from behind `after`.
    pub async fn reservations_of(
        &self,
        tenant: &TenantId,
        filter: &ReservationFilter,
        after: Option<ReservationPlace>,
        limit: usize,
    ) -> Result<Vec<ReservationRow>, LedgerError> {
        pending()
    }
}

fn pending<T>() -> Result<T, LedgerError> {
    Err(LedgerError::Unavailable("not written yet".into()))
}
