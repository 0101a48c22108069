//! A reservation as gate and ledger store it: one record with everything that resolving it needs.

mod packing;

pub(crate) use packing::LIGHT_SCOPE;
pub(super) use packing::{decode_uncharged, takes_back_by};

use std::fmt;

use serde::{Deserialize, Serialize};

use super::algorithms::Parameters;
use super::amount::{Decimals, Units};
use super::codec::Undecodable;
use super::fingerprint::Fingerprint;
use super::ids::{Epoch, MeterId, OperationId, OutboxId, Subject, TenantId};

/// The most lines a reservation has.
pub const LINES_MAX: usize = 8;
/// The most counters (limits and quotas) one request touches.
pub const COUNTERS_MAX: usize = 32;
/// The most subjects one request names.
pub const SUBJECTS_MAX: usize = 4;

/// The state of a reservation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReservationState {
    /// Units are held.
    Reserved,
    /// Resolved: used units are counted, the others returned.
    Consumed,
    /// Resolved: units that were not used are returned.
    Released,
    /// Its time ran out: held units are returned.
    Expired,
}

impl ReservationState {
    /// The number scripts use.
    pub fn code(self) -> u8 {
        match self {
            Self::Reserved => 1,
            Self::Consumed => 2,
            Self::Released => 3,
            Self::Expired => 4,
        }
    }

    /// The state with this number.
    pub fn from_code(code: u8) -> Result<Self, Undecodable> {
        match code {
            1 => Ok(Self::Reserved),
            2 => Ok(Self::Consumed),
            3 => Ok(Self::Released),
            4 => Ok(Self::Expired),
            _ => Err(Undecodable("unknown reservation state")),
        }
    }

    /// The word of the API and the books.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Reserved => "reserved",
            Self::Consumed => "consumed",
            Self::Released => "released",
            Self::Expired => "expired",
        }
    }

    /// The state with this word.
    pub fn parse(word: &str) -> Option<Self> {
        let all = [Self::Reserved, Self::Consumed, Self::Released, Self::Expired];
        all.into_iter().find(|state| state.as_str() == word)
    }
}

impl fmt::Display for ReservationState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// How a consume above the hold is treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnExcess {
    /// The whole amount is recorded, and the excess flagged.
    #[default]
    Record,
    /// At most the hold and the least remaining is charged; the rest is recorded as uncharged.
    Cap,
    /// The call is rejected.
    Reject,
}

/// How a consume after expiry is treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnLate {
    /// Charged once and flagged.
    #[default]
    Charge,
    /// Rejected as expired.
    Reject,
}

/// The part of a record that scripts rewrite.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// The reservation's state.
    pub state: ReservationState,
    /// Consumed after it had expired.
    pub late: bool,
    /// Admitted or changed by a call that was taken while the gate was away.
    pub degraded: bool,
    /// The ordinal of its last change; a reserve or usage is 1.
    pub step: u32,
    /// The epoch under which the record was written.
    pub epoch: Epoch,
    /// When it expires (gate time, unix ms).
    pub expires_at_ms: i64,
    /// When it was made (gate time, unix ms).
    pub born_at_ms: i64,
    /// The latest expiry that `extend` may reach (unix ms).
    pub latest_expiry_ms: i64,
    /// The sequence of its last event within `epoch`.
    pub last_sequence: u64,
    /// How long after `born_at_ms` its work may start at the earliest, in ms: 0 unless a queue stood before it.
    pub start_after_ms: i64,
    /// A bit for each counter that it names and does not move, from the lowest on: those of shadow limits that would
    /// have refused it, and those that were lost since they counted it.
    pub unmoved: u32,
    /// That it corrects what was used, and how.
    pub correction: Option<Correction>,
}

/// How usage is corrected: a record of its own says by how much.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Correction {
    /// More was used.
    More,
    /// Less was used.
    Less,
}

impl Head {
    /// Whether it takes back what its lines say, instead of consuming it.
    pub fn takes_back(&self) -> bool {
        self.correction == Some(Correction::Less)
    }

    /// Whether it did not move the counter of this number.
    pub fn leaves_out(&self, counter: usize) -> bool {
        u32::try_from(counter).is_ok_and(|number| self.unmoved.checked_shr(number).unwrap_or(0) & 1 == 1)
    }

    /// Its last event's place in the outbox.
    pub fn last_event(&self) -> OutboxId {
        OutboxId { epoch: self.epoch, sequence: self.last_sequence }
    }
}

/// The held and consumed units of one line. `held` stays what was granted at the reserve.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LineUnits {
    /// Units held at the reserve (0 for usage).
    pub held: Units,
    /// Units consumed so far.
    pub consumed: Units,
    /// Units that its last consume asked for beyond that, and that `cap` left uncharged.
    pub uncharged: Units,
}

impl LineUnits {
    /// A line without uncharged units.
    pub fn new(held: Units, consumed: Units) -> Self {
        Self { held, consumed, uncharged: Units::ZERO }
    }

    /// Whether this total is the one consumed last: what was charged then, or what was asked for.
    pub fn is_total(&self, total: Units) -> bool {
        total == self.consumed
            || total.saturating_sub(self.consumed) == self.uncharged && total > self.consumed
    }

    /// Units still held while the reservation is reserved.
    pub fn outstanding(&self) -> Units {
        self.held.saturating_sub(self.consumed)
    }

    /// Units consumed above the hold.
    pub fn excess(&self) -> Units {
        self.consumed.saturating_sub(self.held)
    }
}

/// A line's fixed part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LineRule {
    /// The meter.
    pub meter: MeterId,
    /// Its decimals.
    pub decimals: Decimals,
    /// How consumption above the hold is treated.
    pub on_excess: OnExcess,
    /// How consumption after expiry is treated.
    pub on_late: OnLate,
    /// For how long after expiry a late consume is accepted, in seconds.
    pub late_within_seconds: u32,
    /// Whether what was held is an estimate.
    pub estimated: bool,
    /// Whether the meter is booked. Of one that is not, the gate counts the line, and the books leave it out.
    pub booked: bool,
}

/// The name of a counter's field in a state hash: eight ASCII characters that encode the counter's identity and
/// generation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct CounterField(pub [u8; 8]);

impl CounterField {
    /// The eight characters.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or("????????")
    }
}

impl fmt::Debug for CounterField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A subject's name in keys, a truncated keyed hash: `=` and twelve base64url characters.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SubjectHash(pub [u8; 13]);

impl SubjectHash {
    /// The thirteen characters.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or("=????????????")
    }

    /// The twelve characters after the sign.
    pub fn digits(&self) -> &str {
        self.as_str().trim_start_matches('=')
    }
}

impl fmt::Debug for SubjectHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The capacity that a `cap` line is cut to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlaceCapacity {
    /// A limit's, as it was at the reserve.
    Limit(Units),
    /// The quota's, as the gate has it at the consume.
    Quota,
}

/// One counter that a reservation moved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CounterRef {
    /// Its scope: 0 is the tenant, n the n-th subject.
    pub scope_index: u8,
    /// Whether it is a light counter that a booked reservation moved, because it counts lines that are not booked.
    pub is_light: bool,
    /// Its field in the state hash.
    pub field: CounterField,
    /// The parameters it was counted by, such as the window.
    pub parameters: Parameters,
    /// Present only where a line is `cap`.
    pub cap: Option<PlaceCapacity>,
    /// The lines that count, and their weights.
    pub lines: Vec<(u8, i64)>,
    /// Whether it is a quota's; none where the record does not say so.
    pub is_quota: Option<bool>,
}

/// The part of a record that is packed once and never rewritten.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Body {
    /// The fingerprint of the request.
    pub fingerprint: Fingerprint,
    /// Its tenant.
    pub tenant: TenantId,
    /// One to eight lines.
    pub lines: Vec<LineRule>,
    /// Absent in a tombstone.
    pub rest: Option<BodyDetails>,
}

/// The details that a tombstone no longer needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BodyDetails {
    /// The subjects named, each with its hash in keys.
    pub subjects: Vec<(Subject, SubjectHash)>,
    /// The counters moved.
    pub counters: Vec<CounterRef>,
    /// Whether the caller gave an idempotency key.
    pub keyed: bool,
    /// The operation, where one was named.
    pub operation: Option<OperationId>,
    /// The policy version it was admitted under.
    pub policy_version: u64,
    /// The billing period it belongs to, as start and end in unix ms.
    pub period_ms: (i64, i64),
    /// The start of the tenant's local hour it belongs to, in unix ms.
    pub hour_start_ms: i64,
    /// The caller's metadata, as a JSON object; empty when none was given.
    pub metadata: String,
}

impl BodyDetails {
    /// Whether this counter of it is of a subject that may share it with others.
    fn counts_in_slot(&self, place: &CounterRef) -> bool {
        let index = usize::from(place.scope_index).checked_sub(1);
        index
            .and_then(|index| self.subjects.get(index))
            .is_some_and(|(subject, _)| subject.kind.shares_slots())
    }
}

impl Body {
    /// The lines that the books take, each with its number.
    pub fn booked_lines(&self) -> impl Iterator<Item = (usize, &LineRule)> {
        self.lines.iter().enumerate().filter(|(_, rule)| rule.booked)
    }
}

/// A reservation's whole record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The part that scripts rewrite.
    pub head: Head,
    /// Held and consumed units of each line.
    pub units: Vec<LineUnits>,
    /// The part that never changes.
    pub body: Body,
}

impl Record {
    /// The same in another epoch.
    pub fn in_epoch(&self, epoch: Epoch) -> Self {
        Self { head: Head { epoch, ..self.head }, ..self.clone() }
    }

    /// As the ledger gives it back to the gate. What it moved in light counters is lost with them, and after a loss of
    /// memory also what it moved in the slots of anonymous subjects, which no ledger restores: nothing of it moves
    /// there any more.
    pub fn restored_in(&self, epoch: Epoch) -> Self {
        let mut record = self.in_epoch(epoch);
        let was_lost = self.head.epoch < epoch;
        if let Some(rest) = &self.body.rest {
            for (number, place) in rest.counters.iter().take(COUNTERS_MAX).enumerate() {
                let is_lost = place.is_light || (was_lost && rest.counts_in_slot(place));
                record.head.unmoved |= u32::from(is_lost) << number;
            }
        }
        record
    }
}
