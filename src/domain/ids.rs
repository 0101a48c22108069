//! Identifiers, each of its own type, so that a meter can never be passed as a tenant.

use std::borrow::Borrow;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Why a text is not an identifier. The message says what is allowed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidId {
    /// Not `[A-Za-z0-9][A-Za-z0-9_.:-]{0,63}`.
    #[error(
        "must be 1 to 64 characters: a letter or digit first, then letters, digits, `_`, `.`, `:` or `-`"
    )]
    Name,
    /// Not 1 to 128 printable ASCII characters without braces.
    #[error("must be 1 to 128 printable ASCII characters without braces")]
    Subject,
    /// Not 1 to 255 printable ASCII characters.
    #[error("must be 1 to 255 printable ASCII characters")]
    Key,
    /// Not a UUID made by this installation.
    #[error("is not a reservation id of this installation")]
    Reservation,
}

fn is_name(text: &str) -> bool {
    let bytes = text.as_bytes();
    (1..=64).contains(&bytes.len())
        && bytes[0].is_ascii_alphanumeric()
        && bytes.iter().all(|b| b.is_ascii_alphanumeric() || b"_.:-".contains(b))
}

fn is_subject(text: &str) -> bool {
    (1..=128).contains(&text.len())
        && text.bytes().all(|b| (0x20..0x7f).contains(&b) && b != b'{' && b != b'}')
}

fn is_key(text: &str) -> bool {
    (1..=255).contains(&text.len()) && text.bytes().all(|b| (0x20..0x7f).contains(&b))
}

macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident, $check:ident, $error:expr) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(Arc<str>);

        impl $name {
            /// Parses the text; the error says what is allowed.
            pub fn parse(text: &str) -> Result<Self, InvalidId> {
                if $check(text) { Ok(Self(text.into())) } else { Err($error) }
            }

            /// The text itself.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = InvalidId;
            fn try_from(text: String) -> Result<Self, InvalidId> {
                Self::parse(&text)
            }
        }

        impl FromStr for $name {
            type Err = InvalidId;
            fn from_str(text: &str) -> Result<Self, InvalidId> {
                Self::parse(text)
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> String {
                id.0.as_ref().to_owned()
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.0, f)
            }
        }
    };
}

text_id!(
    /// The customer account that owns quota and pays.
    TenantId, is_name, InvalidId::Name
);
text_id!(
    /// What is counted, with its unit: `ocr.page`.
    MeterId, is_name, InvalidId::Name
);
text_id!(
    /// A named piece of work with a cost rule: `ocr.submit`.
    OperationId, is_name, InvalidId::Name
);
text_id!(
    /// A bundle of limits and included quota: `free`.
    PlanId, is_name, InvalidId::Name
);
text_id!(
    /// A rule: at most this much of a meter, per window, for a scope.
    LimitId, is_name, InvalidId::Name
);
text_id!(
    /// Another capacity of a limit, for one tenant or subject.
    OverrideId, is_name, InvalidId::Name
);
text_id!(
    /// A ban that an admin placed on a tenant or one of its subjects.
    BanId, is_name, InvalidId::Name
);
text_id!(
    /// A part of the installation whose load is pushed: `ocr-workers`.
    LoadName, is_name, InvalidId::Name
);
text_id!(
    /// One of several prices of a meter: `base`.
    PriceId, is_name, InvalidId::Name
);
text_id!(
    /// What sort of subject acts: `user`, `api_key`, `device`.
    SubjectKind, is_name, InvalidId::Name
);
text_id!(
    /// Who acts inside a tenant: 1 to 128 printable ASCII characters without braces.
    SubjectId, is_subject, InvalidId::Subject
);
text_id!(
    /// The caller's name for one piece of work: 1 to 255 printable characters.
    IdempotencyKey, is_key, InvalidId::Key
);

impl IdempotencyKey {
    /// The key of an event, of whose source and id neither has to fit into a key.
    pub fn of_event(source: &str, id: &str) -> Self {
        let mut hasher = blake3::Hasher::new();
        for part in [source, id] {
            hasher.update(&u64::try_from(part.len()).unwrap_or(u64::MAX).to_le_bytes());
            hasher.update(part.as_bytes());
        }
        Self(hasher.finalize().to_hex().as_str().into())
    }
}

impl SubjectKind {
    /// The kind whose subjects are counted in a fixed number of slots.
    const ANONYMOUS: &str = "anonymous";

    /// The kind of a subject that is named without one.
    pub fn user() -> Self {
        Self("user".into())
    }

    /// Whether its subjects share slots: several may be counted as one, and none is named in the books.
    pub fn shares_slots(&self) -> bool {
        self.as_str() == Self::ANONYMOUS
    }
}

/// A subject of one kind.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Subject {
    /// What sort of subject.
    pub kind: SubjectKind,
    /// Its id.
    pub id: SubjectId,
}

/// One of the P parts over which tenants are spread; all keys of a tenant have its partition's hash tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Partition(u16);

/// The largest number of partitions of an installation: a reservation id has no room for more.
pub const PARTITIONS_MAX: u16 = 256;

impl Partition {
    /// The one that every installation has.
    pub const FIRST: Self = Self(0);

    /// The partition with this number, or none at or above [`PARTITIONS_MAX`].
    pub fn new(number: u16) -> Option<Self> {
        (number < PARTITIONS_MAX).then_some(Self(number))
    }

    /// The partition of a tenant: a stable hash of its id over `partitions` (1 to 256).
    pub fn of(tenant: &TenantId, partitions: u16) -> Self {
        let hash = blake3::hash(tenant.as_str().as_bytes());
        let mut first = [0; 8];
        first.copy_from_slice(&hash.as_bytes()[..8]);
        let number = u64::from_le_bytes(first) % u64::from(partitions.clamp(1, PARTITIONS_MAX));
        Self(u16::try_from(number).unwrap_or_default())
    }

    /// Its number, from 0.
    pub fn number(self) -> u16 {
        self.0
    }

    /// Its number as an index.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }

    /// All partitions of an installation, in order.
    pub fn all(partitions: u16) -> impl Iterator<Item = Self> {
        (0..partitions.min(PARTITIONS_MAX)).map(Self)
    }
}

impl fmt::Display for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "p{:02}", self.0)
    }
}

/// The number of a partition's memory while that can be trusted; issued by the ledger, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Epoch(pub u64);

/// An event's place in its partition's outbox: never a clock time. Ordered by epoch, then sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct OutboxId {
    /// The epoch under which the event was appended.
    pub epoch: Epoch,
    /// Its number within the epoch, gapless from 0.
    pub sequence: u64,
}

impl fmt::Display for OutboxId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.epoch.0, self.sequence)
    }
}

impl FromStr for OutboxId {
    type Err = std::num::ParseIntError;
    /// Reads Redis's form, `<epoch>-<sequence>`; a missing sequence reads as 0.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (epoch, sequence) = text.split_once('-').unwrap_or((text, "0"));
        Ok(Self { epoch: Epoch(epoch.parse()?), sequence: sequence.parse()? })
    }
}

/// The id of a reservation: a UUID that contains its partition, whether it is a light one, and a short keyed check, so
/// that a forged id costs no look-up. Made and checked by [`ReservationIds`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReservationId(uuid::Uuid);

impl ReservationId {
    /// Reads an id from a place that only holds checked ones, such as an event or a row.
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(uuid::Uuid::from_bytes(bytes))
    }

    /// The sixteen bytes.
    pub fn as_bytes(&self) -> &[u8; 16] {
        self.0.as_bytes()
    }

    /// The id as a UUID.
    pub fn uuid(self) -> uuid::Uuid {
        self.0
    }

    /// Its partition.
    pub fn partition(self) -> Partition {
        Partition(u16::from(self.0.as_bytes()[12]))
    }

    /// Whether the gate alone keeps it: its meters are not booked, and the ledger has never heard of it.
    pub fn is_light(&self) -> bool {
        self.0.as_bytes()[6] & VERSION_BITS == LIGHT_VERSION
    }

    /// Thirty-two hexadecimal digits, as in its key in Redis.
    pub fn to_hex(self) -> String {
        self.0.simple().to_string()
    }
}

impl fmt::Display for ReservationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

const VERSION_BITS: u8 = 0xf0;
/// The version of an id of a reservation that is booked, in its place in byte 6.
const BOOKED_VERSION: u8 = 0x80;
/// The same of a light reservation. Every id made before there were any has the other one.
const LIGHT_VERSION: u8 = 0x40;

/// Makes and checks reservation ids with the installation's key.
///
/// Layout: bytes 0 to 11 are the body (derived from the caller's key, or time and chance), byte 12 the partition, bytes
/// 13 to 15 a keyed check of the bytes before them. The RFC 9562 variant is set in the body, and the version: 8, or 4
/// of a light reservation.
#[derive(Clone)]
pub struct ReservationIds {
    key: [u8; 32],
}

impl ReservationIds {
    /// `secret` is the installation's secret; [`Self::parse`] refuses ids of another installation.
    pub fn new(secret: &[u8; 32]) -> Self {
        Self { key: blake3::derive_key("tollgate reservation ids v1", secret) }
    }

    /// The id of a keyed call, derived from (tenant, call, key), so that a retry is the same reservation.
    pub fn derive(
        &self,
        partition: Partition,
        tenant: &TenantId,
        call: &str,
        key: &IdempotencyKey,
    ) -> ReservationId {
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        for part in [tenant.as_str(), call, key.as_str()] {
            hasher.update(part.as_bytes());
            hasher.update(&[0]);
        }
        let mut body = [0; 12];
        body.copy_from_slice(&hasher.finalize().as_bytes()[..12]);
        self.seal(body, partition)
    }

    /// A new id for a call without a key: `unix_ms` first, so that rows arrive in order, then chance.
    pub fn fresh(&self, partition: Partition, unix_ms: i64, chance: u64) -> ReservationId {
        let mut body = [0; 12];
        body[..6].copy_from_slice(&unix_ms.to_be_bytes()[2..]);
        body[6..].copy_from_slice(&chance.to_be_bytes()[..6]);
        self.seal(body, partition)
    }

    /// The id of the light reservation of the same call.
    pub fn light(&self, id: ReservationId) -> ReservationId {
        self.with_version(*id.as_bytes(), LIGHT_VERSION)
    }

    /// Reads an id from outside. One that this installation did not make is refused without a look-up.
    pub fn parse(&self, text: &str) -> Result<ReservationId, InvalidId> {
        let uuid = uuid::Uuid::try_parse(text).map_err(|_| InvalidId::Reservation)?;
        let bytes = *uuid.as_bytes();
        let check = self.check(&bytes);
        if bytes[13..] == check { Ok(ReservationId(uuid)) } else { Err(InvalidId::Reservation) }
    }

    fn seal(&self, body: [u8; 12], partition: Partition) -> ReservationId {
        let mut bytes = [0; 16];
        bytes[..12].copy_from_slice(&body);
        bytes[8] = (bytes[8] & 0x3f) | 0x80;
        bytes[12] = u8::try_from(partition.0).unwrap_or_default();
        self.with_version(bytes, BOOKED_VERSION)
    }

    fn with_version(&self, mut bytes: [u8; 16], version: u8) -> ReservationId {
        bytes[6] = (bytes[6] & !VERSION_BITS) | version;
        let check = self.check(&bytes);
        bytes[13..].copy_from_slice(&check);
        ReservationId(uuid::Uuid::from_bytes(bytes))
    }

    fn check(&self, bytes: &[u8; 16]) -> [u8; 3] {
        let hash = blake3::keyed_hash(&self.key, &bytes[..13]);
        let mut check = [0; 3];
        check.copy_from_slice(&hash.as_bytes()[..3]);
        check
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_refuse_what_could_reach_a_key() {
        for bad in ["", "{a}", "a{b", "-a", ".a", "a b", "a\n", "é", "a/b", "a=b", &"x".repeat(65)] {
            assert!(TenantId::parse(bad).is_err(), "{bad:?}");
        }
        for good in ["a", "acme", "replay-001", "A_b.c:d-e", &"x".repeat(64)] {
            assert!(TenantId::parse(good).is_ok(), "{good:?}");
        }
        assert!(SubjectId::parse("user {1}").is_err());
        assert!(SubjectId::parse("mail@example.com / 7").is_ok());
    }

    #[test]
    fn a_derived_id_is_a_function_of_tenant_call_and_key() {
        let ids = ReservationIds::new(&[7; 32]);
        let tenant = TenantId::parse("acme").unwrap();
        let key = IdempotencyKey::parse("job-1").unwrap();
        let partition = Partition::of(&tenant, 64);
        let id = ids.derive(partition, &tenant, "reserve", &key);
        assert_eq!(id, ids.derive(partition, &tenant, "reserve", &key));
        assert_ne!(id, ids.derive(partition, &tenant, "usage", &key));
        assert_eq!(id.partition(), partition);
        assert_eq!(ids.parse(&id.to_string()), Ok(id));
    }

    #[test]
    fn a_forged_id_is_refused_without_a_look_up() {
        let ids = ReservationIds::new(&[7; 32]);
        let other = ReservationIds::new(&[8; 32]);
        let id = other.fresh(Partition(3), 1_700_000_000_000, 42);
        assert_eq!(ids.parse(&id.to_string()), Err(InvalidId::Reservation));
        assert_eq!(ids.parse("nonsense"), Err(InvalidId::Reservation));
    }

    #[test]
    fn an_id_says_whether_its_reservation_is_light_and_its_check_covers_that() {
        let ids = ReservationIds::new(&[7; 32]);
        for chance in 0..64 {
            let booked = ids.fresh(Partition(200), 1_700_000_000_000, chance << 40);
            let light = ids.light(booked);
            assert_eq!((booked.is_light(), light.is_light()), (false, true));
            assert_eq!((light.partition(), ids.parse(&light.to_string())), (Partition(200), Ok(light)));
            let mut forged = *booked.as_bytes();
            forged[6] = light.as_bytes()[6];
            let forged = ReservationId::from_bytes(forged).to_string();
            assert_eq!(ids.parse(&forged), Err(InvalidId::Reservation));
        }
    }

    #[test]
    fn outbox_ids_order_by_epoch_then_sequence() {
        let a: OutboxId = "1-99".parse().unwrap();
        let b: OutboxId = "2-0".parse().unwrap();
        assert!(a < b);
        assert_eq!(b.to_string(), "2-0");
    }
}
