//! The identity of a counter, and when a counter must start again at zero.
//!
//! A counter belongs to a tenant and a limit id (or a quota's meter). Capacity, kind, level, plan and message may
//! change, and it goes on. Its *signature* may not: with another window, scope, meter or set of operations it would
//! count something else. Two numbers keep a counter that was left from going on with its stale count: the *generation*
//! of a signature, for the whole installation, and the instant at which the tenant's counter *started*.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

use super::document::Definitions;
use crate::domain::ids::{InvalidId, LimitId, MeterId, OperationId, Subject, SubjectId, SubjectKind};
use crate::domain::limit::{Class, Kind, Limit, Scope};
use crate::domain::reservation::CounterField;

/// The prefix of a quota's counter before its meter; no limit id has a slash.
const QUOTA_PREFIX: &str = "quota/";
/// The same of an operation's least time between calls, before the operation.
const INTERVAL_PREFIX: &str = "interval/";
/// The same of how often a subject of a limit calls, before the limit; an operation comes after both.
const ANOMALY_PREFIX: &str = "anomaly/";

/// A counter's name inside a tenant: a limit's id, or `quota/` and a meter's id.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CounterName(Arc<str>);

impl CounterName {
    /// The counter of a limit.
    pub fn of_limit(limit: &LimitId) -> Self {
        Self(limit.as_str().into())
    }

    /// The counter of a quota.
    pub fn of_quota(meter: &MeterId) -> Self {
        Self(format!("{QUOTA_PREFIX}{meter}").into())
    }

    /// The counter of an operation's least time between calls; it is in no stored policy.
    pub fn of_interval(operation: &OperationId) -> Self {
        Self(format!("{INTERVAL_PREFIX}{operation}").into())
    }

    /// The counter of how often a subject of a limit calls an operation; it is in no stored policy.
    pub fn of_anomaly(limit: &LimitId, operation: Option<&OperationId>) -> Self {
        let operation = operation.map_or("", |operation| operation.as_str());
        Self(format!("{ANOMALY_PREFIX}{limit}/{operation}").into())
    }

    /// The text itself.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for CounterName {
    type Error = InvalidId;
    fn try_from(text: String) -> Result<Self, InvalidId> {
        match text.strip_prefix(QUOTA_PREFIX) {
            Some(meter) => MeterId::parse(meter).map(|meter| Self::of_quota(&meter)),
            None => LimitId::parse(&text).map(|limit| Self::of_limit(&limit)),
        }
    }
}

impl From<CounterName> for String {
    fn from(name: CounterName) -> String {
        name.0.as_ref().to_owned()
    }
}

/// A hash of what a counter counts: equal for two definitions that count the same.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LimitSignature([u8; 16]);

impl LimitSignature {
    /// The signature of a limit: algorithm, window, scope, subject kind, meter, operations, class.
    pub fn of_limit(limit: &Limit) -> Self {
        let algorithm = limit.algorithm.signature();
        let scope = match limit.scope {
            Scope::Tenant => "tenant",
            Scope::Subject => "subject",
            Scope::Global => "global",
        };
        let class = match limit.class {
            Class::Quota => "quota",
            Class::Rate => "rate",
        };
        let kind = limit.subject_kind.as_ref().map_or("", |kind| kind.as_str());
        let mut parts = vec!["limit"];
        parts.extend(algorithm.iter().map(String::as_str));
        let limited = limit.limited.signature();
        parts.extend([scope, kind]);
        parts.extend(limited.iter().map(String::as_str));
        parts.push(class);
        if let Some(operations) = &limit.operations {
            parts.push("operations");
            parts.extend(operations.iter().map(|id| id.as_str()).collect::<BTreeSet<_>>());
        }
        Self::of_parts(&parts)
    }

    /// The signature of a quota.
    pub fn of_quota(meter: &MeterId) -> Self {
        Self::of_parts(&["quota", meter.as_str()])
    }

    /// The signature of a least time between calls.
    pub fn of_interval() -> Self {
        Self::of_parts(&["interval"])
    }

    /// The signature of how often a subject calls.
    pub fn of_anomaly() -> Self {
        Self::of_parts(&["anomaly"])
    }

    fn of_parts(parts: &[&str]) -> Self {
        let mut hasher = blake3::Hasher::new();
        for part in parts {
            hasher.update(part.as_bytes());
            hasher.update(&[0]);
        }
        let mut hash = [0; 16];
        hash.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
        Self(hash)
    }
}

impl fmt::Display for LimitSignature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for LimitSignature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A stored text is not a signature: not 32 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("is not a shape: it must be 32 hexadecimal digits")]
pub struct InvalidShape;

impl FromStr for LimitSignature {
    type Err = InvalidShape;
    fn from_str(text: &str) -> Result<Self, InvalidShape> {
        if text.len() != 32 || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(InvalidShape);
        }
        u128::from_str_radix(text, 16).map(|bits| Self(bits.to_be_bytes())).map_err(|_| InvalidShape)
    }
}

/// The field of a counter: a hash of its identity, generation and start.
pub(super) fn field_of(
    name: &CounterName,
    shape: LimitSignature,
    generation: u32,
    start_ms: i64,
) -> CounterField {
    let mut hasher = blake3::Hasher::new();
    hasher.update(name.as_str().as_bytes()).update(&[0]).update(&shape.0);
    hasher.update(&generation.to_le_bytes()).update(&start_ms.to_le_bytes());
    let text = URL_SAFE_NO_PAD.encode(&hasher.finalize().as_bytes()[..6]);
    let mut field = [b'-'; 8];
    field.copy_from_slice(text.as_bytes());
    CounterField(field)
}

/// How often a signature has come into use for a counter, and when it last did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Generation {
    /// From 1; 0 for a signature that was never recorded.
    pub number: u32,
    /// When it came into use, in unix milliseconds.
    pub since_ms: i64,
}

/// A row of the table of generations; its key is counter and signature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GenerationRow {
    /// Its counter.
    pub counter: CounterName,
    /// Its signature.
    pub shape: LimitSignature,
    /// The generation.
    pub generation: Generation,
}

/// The installation's table of generations.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Generations(HashMap<(CounterName, LimitSignature), Generation>);

impl Generations {
    /// The generation of a counter's signature; number 0 if it was never recorded.
    pub fn get(&self, counter: &CounterName, shape: LimitSignature) -> Generation {
        self.0.get(&(counter.clone(), shape)).copied().unwrap_or_default()
    }
}

impl FromIterator<GenerationRow> for Generations {
    fn from_iter<T: IntoIterator<Item = GenerationRow>>(rows: T) -> Self {
        Self(rows.into_iter().map(|row| ((row.counter, row.shape), row.generation)).collect())
    }
}

impl Extend<GenerationRow> for Generations {
    fn extend<T: IntoIterator<Item = GenerationRow>>(&mut self, rows: T) {
        self.0.extend(rows.into_iter().map(|row| ((row.counter, row.shape), row.generation)));
    }
}

/// The rows to write when `old` becomes `new`. A signature that plans or default limits bring, and that nothing defined
/// before, begins its next generation. A tenant's own limits begin none, because every other tenant's counter would
/// then start again; that tenant's resets say which of its counters are new.
///
/// A limit that is off brings none, so that leaving `off` begins the next generation. Where a tenant's override asked
/// it meanwhile, that tenant's counter goes on, and the resets of the others begin theirs.
///
/// Where plans or default limits change, both definitions must contain every tenant with limits or overrides of its
/// own.
pub fn generations_after(
    old: &Definitions,
    new: &Definitions,
    generations: &Generations,
    now_ms: i64,
) -> Vec<GenerationRow> {
    let of_tenants = old.tenants.values().flat_map(|tenant| &tenant.limits).map(shape_of);
    let overrides = old.tenants.values().flat_map(|tenant| &tenant.overrides);
    let asks = overrides.filter(|each| each.kind.is_some_and(|kind| kind != Kind::Off));
    let asked: BTreeSet<&LimitId> = asks.map(|each| &each.limit).collect();
    let counted = shared_shapes(old, |limit| limit.kind != Kind::Off || asked.contains(&limit.id));
    let defined_before: BTreeSet<_> = counted.chain(of_tenants).collect();
    let counting = shared_shapes(new, |limit| limit.kind != Kind::Off);
    let brought: BTreeSet<_> = counting.filter(|key| !defined_before.contains(key)).collect();
    brought
        .into_iter()
        .map(|(counter, shape)| {
            let number = generations.get(&counter, shape).number.saturating_add(1);
            GenerationRow { counter, shape, generation: Generation { number, since_ms: now_ms } }
        })
        .collect()
}

/// The counters and signatures that quotas of plans, and those shared limits that are asked, define.
fn shared_shapes(
    definitions: &Definitions,
    is_asked: impl Fn(&Limit) -> bool,
) -> impl Iterator<Item = (CounterName, LimitSignature)> {
    let in_plans = definitions.plans.values().flat_map(|plan| &plan.limits);
    let quotas = definitions.plans.values().flat_map(|plan| &plan.quotas);
    let quotas =
        quotas.map(|quota| (CounterName::of_quota(&quota.meter), LimitSignature::of_quota(&quota.meter)));
    let limits = definitions.limits.values().chain(in_plans);
    limits.filter(move |limit| is_asked(limit)).map(shape_of).chain(quotas)
}

fn shape_of(limit: &Arc<Limit>) -> (CounterName, LimitSignature) {
    (CounterName::of_limit(&limit.id), LimitSignature::of_limit(limit))
}

/// A counter of a tenant: its own, or that of one of its subjects which differs from the others.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CounterKey {
    /// The subject, if it counts one.
    pub subject: Option<Subject>,
    /// Its name.
    pub counter: CounterName,
}

/// A decision about when a tenant's counter started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reset {
    /// When the counter started, in unix milliseconds; unique among the tenant's resets.
    pub start_ms: i64,
    /// When this was decided: a limit's own dates may start the counter again later.
    pub decided_ms: i64,
}

/// A tenant's resets, stored with it as a list of rows in JSON. A counter without one counts from the beginning.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "Vec<ResetRow>", into = "Vec<ResetRow>")]
pub struct Resets(BTreeMap<CounterKey, Reset>);

/// A stored reset.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ResetRow {
    counter: CounterName,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    subject_kind: Option<SubjectKind>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    subject: Option<SubjectId>,
    start_ms: i64,
    decided_ms: i64,
}

impl TryFrom<Vec<ResetRow>> for Resets {
    type Error = &'static str;
    fn try_from(rows: Vec<ResetRow>) -> Result<Self, Self::Error> {
        let read = |row: ResetRow| {
            let subject = match (row.subject_kind, row.subject) {
                (None, None) => None,
                (Some(kind), Some(id)) => Some(Subject { kind, id }),
                _ => return Err("a reset names both `subject_kind` and `subject`, or neither"),
            };
            let reset = Reset { start_ms: row.start_ms, decided_ms: row.decided_ms };
            Ok((CounterKey { subject, counter: row.counter }, reset))
        };
        rows.into_iter().map(read).collect::<Result<_, _>>().map(Self)
    }
}

impl From<Resets> for Vec<ResetRow> {
    fn from(resets: Resets) -> Self {
        let rows = resets.0.into_iter().map(|(key, reset)| {
            let (subject_kind, subject) = key.subject.map(|s| (s.kind, s.id)).unzip();
            let Reset { start_ms, decided_ms } = reset;
            ResetRow { counter: key.counter, subject_kind, subject, start_ms, decided_ms }
        });
        rows.collect()
    }
}

impl Resets {
    /// Drops those of a subject. Returns whether it had any.
    pub fn drop_subject(&mut self, subject: &Subject) -> bool {
        let before = self.0.len();
        self.0.retain(|key, _| key.subject.as_ref() != Some(subject));
        self.0.len() < before
    }

    /// The subjects that have a reset of their own.
    pub(super) fn subjects(&self) -> impl Iterator<Item = &Subject> {
        self.0.keys().filter_map(|key| key.subject.as_ref())
    }

    /// When the counter that took effect at `active_from_ms` by its limit's dates started counting.
    pub(super) fn start_ms(&self, key: &CounterKey, active_from_ms: i64) -> i64 {
        let of_all = || self.0.get(&CounterKey { subject: None, counter: key.counter.clone() });
        match self.0.get(key).or_else(of_all) {
            Some(reset) if active_from_ms <= reset.decided_ms => reset.start_ms,
            _ => active_from_ms,
        }
    }

    /// A start that no counter of the tenant has had, at `now_ms` or just after.
    pub(super) fn fresh_start_ms(&self, now_ms: i64) -> i64 {
        let last = self.0.values().map(|reset| reset.start_ms).max();
        last.map_or(now_ms, |last| now_ms.max(last.saturating_add(1)))
    }

    pub(super) fn decide(&mut self, key: CounterKey, start_ms: i64, now_ms: i64) {
        self.0.insert(key, Reset { start_ms, decided_ms: now_ms });
    }
}
