//! A reservation as the gate and the ledger keep it: one record, all that resolving it needs.

mod packing;

pub(super) use packing::decode_uncharged;

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

/// Where a reservation stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReservationState {
    /// Units are held.
    Reserved,
    /// Resolved: used units are counted, the rest returned.
    Consumed,
    /// Resolved: what was not incurred is returned.
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
}

impl fmt::Display for ReservationState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What happens to a consume above the hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnExcess {
    /// The full actual is recorded and the excess flagged.
    #[default]
    Record,
    /// At most the hold and the least remaining is charged; the rest is kept as uncharged.
    Cap,
    /// The call is refused.
    Reject,
}

/// What happens to a consume after expiry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnLate {
    /// Charged once and flagged.
    #[default]
    Charge,
    /// Refused as expired.
    Reject,
}

/// The part of a record that scripts rewrite.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// Where the reservation stands.
    pub state: ReservationState,
    /// Consumed after it had expired.
    pub late: bool,
    /// Admitted, or changed, by a call that was taken while the gate was away.
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
}

impl Head {
    /// Its last event's place in the outbox.
    pub fn last_event(&self) -> OutboxId {
        OutboxId { epoch: self.epoch, sequence: self.last_sequence }
    }
}

/// What one line holds and has consumed so far. `held` stays what was granted at the reserve.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LineUnits {
    /// Units held at the reserve (0 for usage).
    pub held: Units,
    /// Units consumed so far.
    pub consumed: Units,
    /// Units that its last consume asked for beyond that, and a `cap` kept uncharged.
    pub uncharged: Units,
}

impl LineUnits {
    /// A line of which nothing was kept uncharged.
    pub fn new(held: Units, consumed: Units) -> Self {
        Self { held, consumed, uncharged: Units::ZERO }
    }

    /// Whether this total is the one that was consumed last: what was charged then, or what was asked for.
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
    /// What happens above the hold.
    pub on_excess: OnExcess,
    /// What happens after expiry.
    pub on_late: OnLate,
    /// For how long after expiry a late consume is taken, in seconds.
    pub late_within_seconds: u32,
}

/// The name of a counter's field in a state hash: eight ASCII characters that carry the counter's identity and generation.
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

/// A truncated keyed hash that stands for a subject in keys: `=` and twelve base64url characters.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SubjectHash(pub [u8; 13]);

impl SubjectHash {
    /// The thirteen characters.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or("=????????????")
    }
}

impl fmt::Debug for SubjectHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The capacity a `cap` line is measured against.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlaceCapacity {
    /// A limit's, as it was at the reserve.
    Limit(Units),
    /// The quota's, as the gate knows it at the consume.
    Quota,
}

/// One counter that a reservation moved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CounterRef {
    /// Whose: 0 is the tenant's, n the n-th subject's.
    pub scope_index: u8,
    /// Which field.
    pub field: CounterField,
    /// How it was counted, such as the window.
    pub parameters: Parameters,
    /// Given only where a line is `cap`.
    pub cap: Option<PlaceCapacity>,
    /// Which lines count, and with what weight.
    pub lines: Vec<(u8, i64)>,
    /// Whether it is a quota's; none where the record does not say so.
    pub is_quota: Option<bool>,
}

/// The part of a record that is packed once and never rewritten.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Body {
    /// What the request meant.
    pub fingerprint: Fingerprint,
    /// Whose units.
    pub tenant: TenantId,
    /// One to eight lines.
    pub lines: Vec<LineRule>,
    /// Absent in a tombstone.
    pub rest: Option<BodyDetails>,
}

/// What a tombstone no longer needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BodyDetails {
    /// The subjects named, each with the hash that stands for it in keys.
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

/// A reservation's whole record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// What scripts rewrite.
    pub head: Head,
    /// Per line: held and consumed.
    pub units: Vec<LineUnits>,
    /// What never changes.
    pub body: Body,
}
