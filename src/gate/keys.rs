//! The gate's keys: every one of them is built here and nowhere else.

use crc::{CRC_16_XMODEM, Crc};

use super::work::WorkHash;
use crate::domain::ids::{Epoch, Partition, ReservationId, Subject, TenantId};
use crate::domain::reservation::{CounterField, SubjectHash};

const SLOTS: u32 = 16_384;
const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
const CRC: Crc<u16> = Crc::<u16>::new(&CRC_16_XMODEM);

/// What a key belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyOf {
    /// A partition's own facts.
    Meta(Partition),
    /// A partition's events.
    Outbox(Partition),
    /// One reservation.
    Reservation(ReservationId),
    /// A partition's list of reservations that are due in this bucket.
    Due(Partition, i64),
    /// A partition's light reservations that hold, by when they end.
    Holds(Partition),
    /// A tenant's state.
    Tenant(Partition, TenantId),
    /// The state of a tenant's subject.
    Subject(Partition, TenantId, SubjectHash),
    /// A tenant's light counters, or those of one of its subjects.
    Light(Partition, TenantId, Option<SubjectHash>),
    /// The filter of a tenant's subjects that the ledger has.
    KnownSubjects(Partition, TenantId),
    /// The log of a counter of the tenant or of one of its subjects, and whether the counter is light.
    Log(Partition, TenantId, Option<SubjectHash>, CounterField, bool),
    /// The first submission of some work of a tenant.
    Work(Partition, TenantId, WorkHash),
    /// The counters of global limits.
    Global(Partition),
    /// What a reservation took of global limits.
    Taken(Partition, ReservationId),
    /// A tenant's bans that limits have placed in an epoch.
    Bans(Partition, Epoch, TenantId),
}

/// Builds keys: versioned, under the partition's hash tag, and without any raw subject.
#[derive(Debug, Clone)]
pub struct Keys {
    prefixes: Vec<String>,
    subject_key: [u8; 32],
    anonymous_slots: u32,
}

impl Keys {
    /// For an installation of `partitions` (1 to 256) with this secret. Each tenant's anonymous subjects share
    /// `anonymous_slots` names (at least 1).
    pub fn new(partitions: u16, anonymous_slots: u32, secret: &[u8; 32]) -> Self {
        let prefixes =
            Partition::all(partitions).map(|p| format!("tg1:{{{}}}:", tag(p, partitions))).collect();
        let subject_key = blake3::derive_key("tollgate subject hashes v1", secret);
        Self { prefixes, subject_key, anonymous_slots: anonymous_slots.max(1) }
    }

    fn key(&self, partition: Partition, rest: &[&str]) -> String {
        let prefix = self.prefixes.get(partition.index()).map_or("", String::as_str);
        let mut key = String::with_capacity(prefix.len() + 96);
        key.push_str(prefix);
        for part in rest {
            key.push_str(part);
        }
        key
    }

    /// The partition's own facts.
    pub fn meta(&self, partition: Partition) -> String {
        self.key(partition, &["meta"])
    }

    /// The partition's events.
    pub fn outbox(&self, partition: Partition) -> String {
        self.key(partition, &["outbox"])
    }

    /// One reservation.
    pub fn reservation(&self, id: ReservationId) -> String {
        let kind = if id.is_light() { "held:" } else { "rsv:" };
        self.key(id.partition(), &[kind, &id.to_hex()])
    }

    /// A pattern that matches the key of every light reservation of a partition.
    pub fn light_pattern(&self, partition: Partition) -> String {
        self.key(partition, &["held:*"])
    }

    /// A partition's light reservations that hold, by when they end.
    pub fn holds(&self, partition: Partition) -> String {
        self.key(partition, &["holds"])
    }

    /// A partition's list of reservations that are due in this bucket.
    pub fn due(&self, partition: Partition, bucket: i64) -> String {
        self.key(partition, &["due:", &bucket.to_string()])
    }

    /// The partition and bucket of a due list's key, if it is one of this installation's.
    pub fn read_due(&self, key: &str) -> Option<(Partition, i64)> {
        match self.read(key)? {
            KeyOf::Due(partition, bucket) => Some((partition, bucket)),
            _ => None,
        }
    }

    /// A pattern that matches every due list's key.
    pub const DUE_PATTERN: &str = "tg1:*:due:*";

    /// A tenant's state.
    pub fn tenant(&self, partition: Partition, tenant: &TenantId) -> String {
        self.key(partition, &["state:", tenant.as_str()])
    }

    /// The state of a tenant's subject. A tenant id contains no `=`, so it can never equal this key.
    pub fn subject(&self, partition: Partition, tenant: &TenantId, hash: SubjectHash) -> String {
        self.key(partition, &["state:", tenant.as_str(), ":", hash.as_str()])
    }

    /// A tenant's light counters, or those of one of its subjects.
    pub fn light(&self, partition: Partition, tenant: &TenantId, subject: Option<SubjectHash>) -> String {
        match subject {
            None => self.key(partition, &["light:", tenant.as_str()]),
            Some(hash) => self.key(partition, &["light:", tenant.as_str(), ":", hash.as_str()]),
        }
    }

    /// The filter of a tenant's subjects that the ledger has.
    pub fn known_subjects(&self, partition: Partition, tenant: &TenantId) -> String {
        self.key(partition, &["known:", tenant.as_str()])
    }

    /// The log of a counter of the tenant or of one of its subjects.
    pub fn log(
        &self,
        partition: Partition,
        tenant: &TenantId,
        subject: Option<SubjectHash>,
        field: CounterField,
        is_light: bool,
    ) -> String {
        let kind = if is_light { "light-log:" } else { "log:" };
        match subject {
            None => self.key(partition, &[kind, tenant.as_str(), ":", field.as_str()]),
            Some(hash) => {
                self.key(partition, &[kind, tenant.as_str(), ":", hash.as_str(), ":", field.as_str()])
            }
        }
    }

    /// A pattern that matches the key of every log of a tenant's subject.
    pub fn logs_pattern(&self, partition: Partition, tenant: &TenantId, hash: SubjectHash) -> String {
        self.key(partition, &["*log:", tenant.as_str(), ":", hash.as_str(), ":*"])
    }

    /// The first submission of some work of a tenant.
    pub fn work(&self, partition: Partition, tenant: &TenantId, hash: WorkHash) -> String {
        self.key(partition, &["work:", tenant.as_str(), ":", hash.as_str()])
    }

    /// The counters of global limits, which are all in one partition.
    pub fn global(&self, partition: Partition) -> String {
        self.key(partition, &["global"])
    }

    /// What a reservation took of global limits.
    pub fn taken(&self, partition: Partition, id: ReservationId) -> String {
        self.key(partition, &["taken:", &id.to_hex()])
    }

    /// A tenant's bans that limits have placed in an epoch.
    pub fn bans(&self, partition: Partition, epoch: Epoch, tenant: &TenantId) -> String {
        self.key(partition, &["bans:", &epoch.0.to_string(), ":", tenant.as_str()])
    }

    /// What a key belongs to, if it is one of this installation's.
    pub fn read(&self, key: &str) -> Option<KeyOf> {
        let number = key.strip_prefix("tg1:{p")?.split(|c: char| !c.is_ascii_digit()).next()?;
        let partition = Partition::new(number.parse().ok()?)?;
        let rest = key.strip_prefix(self.prefixes.get(partition.index())?)?;
        let tenant_here = |text: &str| {
            let tenant = TenantId::parse(text).ok()?;
            (usize::from(Partition::of(&tenant, self.count()).number()) == partition.index())
                .then_some(tenant)
        };
        let holder_here = |holder: &str| match holder.rsplit_once(":=") {
            Some((tenant, _)) => {
                let hash = holder.as_bytes().get(tenant.len() + 1..)?.try_into().ok()?;
                Some((tenant_here(tenant)?, Some(SubjectHash(hash))))
            }
            None => Some((tenant_here(holder)?, None)),
        };
        let reservation = |hex: &str| {
            u128::from_str_radix(hex, 16).ok().map(|id| ReservationId::from_bytes(id.to_be_bytes()))
        };
        let of = match rest.split_once(':').unwrap_or((rest, "")) {
            ("meta", _) => KeyOf::Meta(partition),
            ("global", _) => KeyOf::Global(partition),
            ("taken", hex) => KeyOf::Taken(partition, reservation(hex)?),
            ("outbox", _) => KeyOf::Outbox(partition),
            ("holds", _) => KeyOf::Holds(partition),
            ("rsv" | "held", hex) => KeyOf::Reservation(reservation(hex)?),
            ("due", bucket) => KeyOf::Due(partition, bucket.parse().ok()?),
            ("known", tenant) => KeyOf::KnownSubjects(partition, tenant_here(tenant)?),
            (kind @ ("state" | "light"), holder) => match (kind, holder_here(holder)?) {
                ("light", (tenant, subject)) => KeyOf::Light(partition, tenant, subject),
                (_, (tenant, Some(subject))) => KeyOf::Subject(partition, tenant, subject),
                (_, (tenant, None)) => KeyOf::Tenant(partition, tenant),
            },
            (kind @ ("log" | "light-log"), counter) => {
                let (holder, field) = counter.rsplit_once(':')?;
                let (tenant, subject) = holder_here(holder)?;
                let field = CounterField(field.as_bytes().try_into().ok()?);
                KeyOf::Log(partition, tenant, subject, field, kind == "light-log")
            }
            ("work", work) => {
                let (tenant, hash) = work.rsplit_once(':')?;
                KeyOf::Work(partition, tenant_here(tenant)?, WorkHash(hash.as_bytes().try_into().ok()?))
            }
            ("bans", rest) => {
                let (epoch, tenant) = rest.split_once(':')?;
                KeyOf::Bans(partition, Epoch(epoch.parse().ok()?), tenant_here(tenant)?)
            }
            _ => return None,
        };
        (self.build(&of) == key).then_some(of)
    }

    fn count(&self) -> u16 {
        u16::try_from(self.prefixes.len()).unwrap_or(u16::MAX)
    }

    fn build(&self, of: &KeyOf) -> String {
        match of {
            KeyOf::Meta(partition) => self.meta(*partition),
            KeyOf::Outbox(partition) => self.outbox(*partition),
            KeyOf::Reservation(id) => self.reservation(*id),
            KeyOf::Due(partition, bucket) => self.due(*partition, *bucket),
            KeyOf::Holds(partition) => self.holds(*partition),
            KeyOf::Tenant(partition, tenant) => self.tenant(*partition, tenant),
            KeyOf::Subject(partition, tenant, hash) => self.subject(*partition, tenant, *hash),
            KeyOf::Light(partition, tenant, hash) => self.light(*partition, tenant, *hash),
            KeyOf::KnownSubjects(partition, tenant) => self.known_subjects(*partition, tenant),
            KeyOf::Log(partition, tenant, subject, field, is_light) => {
                self.log(*partition, tenant, *subject, *field, *is_light)
            }
            KeyOf::Work(partition, tenant, hash) => self.work(*partition, tenant, *hash),
            KeyOf::Global(partition) => self.global(*partition),
            KeyOf::Taken(partition, id) => self.taken(*partition, *id),
            KeyOf::Bans(partition, epoch, tenant) => self.bans(*partition, *epoch, tenant),
        }
    }

    /// A subject's name in keys: a truncated keyed hash of (tenant, kind, id), or of (tenant, kind, slot) for a kind
    /// whose subjects share slots.
    pub fn subject_hash(&self, tenant: &TenantId, subject: &Subject) -> SubjectHash {
        let whose = [tenant.as_str(), subject.kind.as_str()];
        let digest_of = |id: &[u8]| self.digest(&[whose[0].as_bytes(), whose[1].as_bytes(), id]);
        let mut digest = digest_of(subject.id.as_str().as_bytes());
        if subject.kind.shares_slots() {
            let mut first = [0; 8];
            first.copy_from_slice(&digest.as_bytes()[..8]);
            let slot = u64::from_le_bytes(first) % u64::from(self.anonymous_slots);
            digest = digest_of(&slot.to_le_bytes());
        }
        let mut hash = [b'='; 13];
        write_digits(&digest, &mut hash[1..]);
        SubjectHash(hash)
    }

    /// The name of a submission in keys: a truncated keyed hash of its parts.
    pub fn work_hash(&self, parts: &[&str]) -> WorkHash {
        let parts: Vec<_> = parts.iter().map(|part| part.as_bytes()).collect();
        let mut hash = [0; 16];
        write_digits(&self.digest(&parts), &mut hash);
        WorkHash(hash)
    }

    fn digest(&self, parts: &[&[u8]]) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new_keyed(&self.subject_key);
        for part in parts {
            hasher.update(part);
            hasher.update(&[0]);
        }
        hasher.finalize()
    }
}

/// As much of a digest as there is room for, in digits.
fn write_digits(digest: &blake3::Hash, out: &mut [u8]) {
    for (place, byte) in out.iter_mut().zip(digest.as_bytes()) {
        *place = DIGITS[usize::from(byte & 63)];
    }
}

/// The slot of a hash tag on Redis Cluster.
pub fn slot(tag: &str) -> u32 {
    u32::from(CRC.checksum(tag.as_bytes())) % SLOTS
}

/// A partition's hash tag: `pNN` and the one or two letters whose slot is nearest to the middle of the partition's even
/// share.
pub fn tag(partition: Partition, partitions: u16) -> String {
    let share = SLOTS / u32::from(partitions.max(1));
    let middle = u32::from(partition.number()) * SLOTS / u32::from(partitions.max(1)) + share / 2;
    let stem = partition.to_string();
    let mut stem_crc = CRC.digest();
    stem_crc.update(stem.as_bytes());
    let distance = |suffix: &str| {
        let mut crc = stem_crc.clone();
        crc.update(suffix.as_bytes());
        (u32::from(crc.finalize()) % SLOTS).abs_diff(middle)
    };
    let nearest = suffixes().min_by_key(|suffix| distance(suffix)).unwrap_or_default();
    stem + &nearest
}

/// `a` to `z`, then `aa` to `zz`.
fn suffixes() -> impl Iterator<Item = String> {
    let letters = || 'a'..='z';
    let double = letters().flat_map(move |first| letters().map(move |second| format!("{first}{second}")));
    letters().map(String::from).chain(double)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::ids::{SubjectId, SubjectKind};

    #[test]
    fn the_tags_of_an_installation_are_evenly_spaced_and_stand_for_ever() {
        let slots: Vec<u32> = Partition::all(64).map(|p| slot(&tag(p, 64))).collect();
        for (number, found) in (0..).zip(&slots) {
            assert_eq!(found / 256, number, "partition {number} is outside its share");
        }
        assert_eq!(slot("123456789"), 12739);
        let pinned = [0, 7, 63].map(|n| tag(Partition::new(n).unwrap(), 64));
        assert_eq!(pinned, ["p00pe", "p07g", "p63an"]);
    }

    #[test]
    fn a_due_lists_key_says_its_partition_and_bucket() {
        let keys = Keys::new(64, 65_536, &[7; 32]);
        let place = (Partition::new(7).unwrap(), 1_700_000_060);
        assert_eq!(keys.read_due(&keys.due(place.0, place.1)), Some(place));
        for other in ["tg1:{p07zz}:due:5", "tg1:{p07g}:meta", "tg1:{p07g}:due:x", "tg1:{p99a}:due:1", "due:1"]
        {
            assert_eq!(keys.read_due(other), None, "{other}");
        }
    }

    #[test]
    fn a_key_says_what_it_is_of_and_a_foreign_one_nothing() {
        let keys = Keys::new(4, 65_536, &[7; 32]);
        let tenant = TenantId::parse("acme").unwrap();
        let partition = Partition::of(&tenant, 4);
        let ids = crate::domain::ids::ReservationIds::new(&[7; 32]);
        let id = ids.fresh(partition, 1_700_000_000_000, 9);
        let log = |subject, is_light| {
            KeyOf::Log(partition, tenant.clone(), subject, CounterField(*b"AAbb01-_"), is_light)
        };
        for of in [
            KeyOf::Meta(partition),
            KeyOf::Outbox(partition),
            KeyOf::Reservation(id),
            KeyOf::Reservation(ids.light(id)),
            KeyOf::Holds(partition),
            KeyOf::Due(partition, 1_700_000_060),
            KeyOf::Tenant(partition, tenant.clone()),
            KeyOf::Subject(partition, tenant.clone(), SubjectHash(*b"=abcdefghijkl")),
            KeyOf::Light(partition, tenant.clone(), None),
            KeyOf::Light(partition, tenant.clone(), Some(SubjectHash(*b"=abcdefghijkl"))),
            KeyOf::KnownSubjects(partition, tenant.clone()),
            log(None, false),
            log(Some(SubjectHash(*b"=abcdefghijkl")), false),
            log(None, true),
            log(Some(SubjectHash(*b"=abcdefghijkl")), true),
            KeyOf::Work(partition, tenant.clone(), WorkHash(*b"AAbb01-_AAbb01-_")),
            KeyOf::Global(partition),
            KeyOf::Taken(partition, id),
            KeyOf::Bans(partition, Epoch(12), tenant.clone()),
        ] {
            assert_eq!(keys.read(&keys.build(&of)), Some(of));
        }
        let prefix = |partition| keys.key(partition, &[]);
        let elsewhere = Partition::all(4).find(|other| *other != partition).unwrap();
        for foreign in [
            "sessions:7".to_owned(),
            "tg1:{p00}:meta".to_owned(),
            prefix(partition) + "meta:2",
            prefix(partition) + "rsv:xyz",
            prefix(partition) + "held:" + &id.to_hex(),
            prefix(partition) + "rsv:" + &ids.light(id).to_hex(),
            prefix(partition) + "holds:1",
            prefix(partition) + "global:1",
            prefix(partition) + "taken:7",
            prefix(elsewhere) + "rsv:" + &id.to_hex(),
            prefix(elsewhere) + "state:acme",
            prefix(partition) + "state:acme:=short",
            prefix(partition) + "due:007",
        ] {
            assert_eq!(keys.read(&foreign), None, "{foreign}");
        }
    }

    #[test]
    fn a_subject_never_stands_in_a_key_and_its_hash_is_its_tenants_own() {
        let keys = Keys::new(4, 65_536, &[7; 32]);
        let subject = Subject {
            kind: SubjectKind::parse("user").unwrap(),
            id: SubjectId::parse("mail@example.com").unwrap(),
        };
        let tenant = |name: &str| TenantId::parse(name).unwrap();
        let hash = keys.subject_hash(&tenant("acme"), &subject);
        assert_eq!(hash.as_str().len(), 13);
        assert!(TenantId::parse(hash.as_str()).is_err());
        assert_ne!(hash, keys.subject_hash(&tenant("other"), &subject));
        let key = keys.subject(Partition::new(0).unwrap(), &tenant("acme"), hash);
        assert!(!key.contains("mail"), "{key}");
    }
}
