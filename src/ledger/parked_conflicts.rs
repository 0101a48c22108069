//! Parked calls that the gate will never take, until an operator settles each.

use chrono::{DateTime, Utc};
use diesel::pg::Pg;
use diesel::prelude::*;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use futures::FutureExt;
use serde_json::{Value, json};

use super::columns::Milliseconds;
use super::parked::{CONFLICT, NOTICE, WAITING};
use super::schema::parked;
use super::{
    BEGIN, Conflict, KnownReservation, Ledger, LedgerError, NewParked, audit, notices, number, passed,
    quarantine, reservations,
};
use crate::domain::ids::{ReservationId, TenantId};

/// A parked call that the gate will never take.
#[derive(Debug, Clone, PartialEq, Eq, Queryable, Selectable)]
#[diesel(table_name = parked, check_for_backend(Pg))]
pub struct ParkedConflict {
    /// Its number.
    pub number: i64,
    /// Its tenant.
    pub tenant: TenantId,
    /// Its reservation.
    #[diesel(column_name = reservation_id)]
    pub reservation: ReservationId,
    /// `reserve`, `usage`, `consume` or `release`.
    pub call: String,
    /// When it was taken (gate time, unix ms).
    #[diesel(column_name = taken_at, deserialize_as = Milliseconds)]
    pub taken_at_ms: i64,
    /// The packed call.
    pub payload: Vec<u8>,
    /// Why the gate does not take it.
    #[diesel(select_expression = parked::reason.assume_not_null())]
    pub reason: String,
}

/// What the ledger has of a conflict's reservation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConflictedReservation {
    /// Its booked row and its parked calls.
    pub known: KnownReservation,
    /// Whether an event of it waits in quarantine: that event is not in the books, but may still be booked.
    pub in_quarantine: bool,
}

/// How a conflict is settled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Settlement {
    /// Nothing of it is booked.
    Drop,
    /// It waits for the gate again.
    Retry,
    /// An admission waits for the gate in its place, if the reservation has not changed since it was seen.
    Usage {
        /// The admission's id.
        id: ReservationId,
        /// The admission.
        admission: NewParked,
        /// What its amounts were calculated from.
        seen: Box<ConflictedReservation>,
    },
}

impl Settlement {
    fn word(&self) -> &'static str {
        match self {
            Self::Drop => "drop",
            Self::Retry => "retry",
            Self::Usage { .. } => "usage",
        }
    }
}

/// Who settles a conflict, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settling {
    /// Who.
    pub actor: String,
    /// Why.
    pub reason: String,
    /// What is booked in its place, for the audit log.
    pub booked: Value,
}

async fn standing(
    connection: &mut AsyncPgConnection,
    id: ReservationId,
) -> Result<ConflictedReservation, LedgerError> {
    let known = super::parked::known(connection, id).await?;
    let in_quarantine = !quarantine::waiting(connection, &[id]).await?.is_empty();
    Ok(ConflictedReservation { known, in_quarantine })
}

/// Locks the reservation while a conflict of it is settled, and checks that it has not changed since it was seen.
async fn hold_as_seen(
    connection: &mut AsyncPgConnection,
    id: ReservationId,
    seen: &ConflictedReservation,
) -> Result<(), LedgerError> {
    super::parked::lock(connection, id).await?;
    reservations::hold_row(connection, id).await?;
    let now = standing(connection, id).await?;
    if now == *seen {
        return Ok(());
    }
    let found = now.known.row.map(|row| u64::from(row.step));
    Err(LedgerError::Conflict(Conflict::Version { kind: "reservation", id: id.to_string(), found }))
}

async fn settle(
    connection: &mut AsyncPgConnection,
    conflict: &ParkedConflict,
    settlement: &Settlement,
    settling: Settling,
) -> Result<(), LedgerError> {
    if let Settlement::Usage { seen, .. } = settlement {
        hold_as_seen(connection, conflict.reservation, seen).await?;
    }
    let call = parked::table.filter(parked::number.eq(conflict.number)).filter(parked::state.eq(CONFLICT));
    // The audit log keeps what is removed here.
    let settled = if matches!(settlement, Settlement::Retry) {
        let waits_again = (
            parked::state.eq(WAITING),
            parked::reason.eq(None::<String>),
            parked::settled_at.eq(None::<DateTime<Utc>>),
        );
        diesel::update(call).set(waits_again).execute(connection).await?
    } else {
        diesel::delete(call).execute(connection).await?
    };
    if settled == 0 {
        return Err(missing(conflict.number));
    }
    match settlement {
        Settlement::Drop => {}
        Settlement::Retry => {
            notices::tell(connection, NOTICE, conflict.tenant.as_str(), 0).await?;
        }
        Settlement::Usage { id, admission, .. } => {
            let passed = passed::read(connection, &[id.partition()].into()).await?;
            let passed_ms = passed.into_values().next().unwrap_or(i64::MIN);
            let taken_at_ms = admission.taken_at_ms.max(passed_ms);
            let admission = NewParked { taken_at_ms, ..admission.clone() };
            super::parking::insert(connection, &[(*id, admission)]).await?;
        }
    }
    let payload: String = conflict.payload.iter().map(|byte| format!("{byte:02x}")).collect();
    let detail = json!({
        "choice": settlement.word(),
        "reason": settling.reason,
        "tenant": conflict.tenant.as_str(),
        "reservation": conflict.reservation.to_string(),
        "call": conflict.call,
        "taken_at_ms": conflict.taken_at_ms,
        "conflict": conflict.reason,
        "payload": payload,
        "booked": settling.booked,
    });
    let object = format!("parked {}", conflict.number);
    audit::note(connection, &settling.actor, "resolve", &object, detail).await
}

fn missing(number: i64) -> LedgerError {
    LedgerError::Conflict(Conflict::Missing { kind: "parked call in conflict", id: number.to_string() })
}

impl Ledger {
    /// Conflicts in the order in which their calls were taken, at most `limit`.
    pub async fn parked_conflicts(&self, limit: usize) -> Result<Vec<ParkedConflict>, LedgerError> {
        self.conflicts(None, limit).await
    }

    /// One conflict.
    ///
    /// Errors: [`super::Conflict::Missing`] when there is none with this number.
    pub async fn parked_conflict(&self, number: i64) -> Result<ParkedConflict, LedgerError> {
        let found = self.conflicts(Some(number), 1).await?;
        found.into_iter().next().ok_or_else(|| missing(number))
    }

    async fn conflicts(&self, only: Option<i64>, limit: usize) -> Result<Vec<ParkedConflict>, LedgerError> {
        let query = || {
            let conflicts = parked::table.filter(parked::state.eq(CONFLICT)).into_boxed();
            let conflicts = match only {
                Some(number) => conflicts.filter(parked::number.eq(number)),
                None => conflicts,
            };
            conflicts.select(ParkedConflict::as_select()).order(parked::number).limit(number::limit(limit))
        };
        self.load(query).await
    }

    /// What the ledger has of the reservation of a conflict.
    pub async fn conflict_standing(&self, id: ReservationId) -> Result<ConflictedReservation, LedgerError> {
        self.read(|connection| standing(connection, id).boxed()).await
    }

    /// Settles a conflict, once, and notes it in the audit log.
    ///
    /// Errors: [`super::Conflict::Missing`] when it is settled already; [`super::Conflict::Version`] when the
    /// reservation has changed since it was seen.
    pub async fn settle_conflict(
        &self,
        conflict: ParkedConflict,
        settlement: Settlement,
        settling: Settling,
    ) -> Result<(), LedgerError> {
        self.transact(BEGIN, move |connection| {
            async move { settle(connection, &conflict, &settlement, settling).await }.boxed()
        })
        .await
    }
}
