//! Refused calls that limits with a punishment have counted: summed up in memory, and written to the ledger.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use uuid::Uuid;

use crate::domain::ids::{LimitId, SubjectKind, TenantId};
use crate::domain::punishment::Deed;
use crate::domain::reservation::SubjectHash;
use crate::ledger::{MinuteOfViolations, ViolationCursor, ViolationFilter};
use crate::operations::answers::Rows;
use crate::operations::core::Core;
use crate::operations::error::{Answer, OperationError};
use crate::operations::limit_status::LimitStatus;
use crate::operations::requests::ViolationsRequest;

/// The most sums in memory. What would be one more is counted and dropped.
const SUMS_MAX: usize = 10_000;
const MINUTE_MS: i64 = 60_000;

/// What is summed up.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    minute_ms: i64,
    tenant: TenantId,
    limit: LimitId,
    subject: Option<(SubjectKind, SubjectHash)>,
}

/// A minute's totals of this instance, under the id by which the ledger knows them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Sum {
    id: Uuid,
    violations: u64,
    bans: u64,
    under_ban: u64,
    is_written: bool,
}

/// Violations of limits.
pub struct Violations {
    core: Arc<Core>,
    sums: Mutex<HashMap<Key, Sum>>,
    /// Held while some are written.
    turn: tokio::sync::Mutex<()>,
}

impl Violations {
    pub(super) fn new(core: Arc<Core>) -> Self {
        Self { core, sums: Mutex::default(), turn: tokio::sync::Mutex::default() }
    }

    /// Notes what a refused call was to a limit that refused it.
    pub(super) fn note(&self, tenant: &TenantId, status: &LimitStatus) {
        let deed = status.conduct.deed;
        let Some(limit) = status.counter.limit().filter(|_| deed != Deed::Nothing) else { return };
        self.core.metrics.limit_punished(limit.id.as_str(), deed.is_violation(), deed == Deed::LastViolation);
        let hash_of = |subject| self.core.gate.subject_hash(tenant, subject);
        let key = Key {
            minute_ms: status.as_of_ms.div_euclid(MINUTE_MS) * MINUTE_MS,
            tenant: tenant.clone(),
            limit: limit.id.clone(),
            subject: status.subject.as_ref().map(|subject| (subject.kind.clone(), hash_of(subject))),
        };
        if !add(&mut self.sums(), key, deed) {
            self.core.metrics.violations_dropped(1);
        }
    }

    /// Writes to the ledger what it does not have yet. Totals are written, never increments, so a call whose outcome is
    /// unknown is repeated.
    pub async fn write(&self) {
        let _turn = self.turn.lock().await;
        let unwritten: Vec<_> = {
            let sums = self.sums();
            sums.iter().filter(|(_, sum)| !sum.is_written).map(|(key, sum)| (key.clone(), *sum)).collect()
        };
        let minutes: Vec<_> = unwritten.iter().map(|(key, sum)| (sum.id, minute(key, sum))).collect();
        if !minutes.is_empty() {
            match self.core.ledger.add_violations(&minutes).await {
                Ok(()) => {}
                Err(error) if error.is_transient() => {
                    tracing::debug!(%error, "violations wait to be written");
                    return;
                }
                Err(error) => {
                    tracing::warn!(%error, "violations could not be written and are dropped");
                    self.core.metrics.violations_dropped(u64::try_from(minutes.len()).unwrap_or(u64::MAX));
                }
            }
        }
        let now_ms = self.core.gate_now_ms();
        forget(&mut self.sums(), unwritten, now_ms);
    }

    /// Violations by minute, newest first.
    pub async fn list(&self, request: ViolationsRequest) -> Answer<Rows<MinuteOfViolations>> {
        self.core.policy.named_if_any(request.tenant.as_ref()).await?;
        let subject = match (&request.tenant, request.subject) {
            (_, None) => None,
            (None, Some(_)) => {
                return Err(OperationError::Malformed("a subject goes with its tenant".into()));
            }
            (Some(tenant), Some(subject)) => {
                let hash = self.core.gate.subject_hash(tenant, &subject);
                Some((subject.kind.to_string(), hash.digits().to_owned()))
            }
        };
        let (from_ms, to_ms) = request.span_ms;
        let filter =
            ViolationFilter { tenant: request.tenant, limit: request.limit, subject, from_ms, to_ms };
        let after = request.page.after.as_deref().map(place).transpose()?;
        let limit = request.page.rows_max();
        let found = self.core.ledger.violations(&filter, after.as_ref(), limit + 1).await?;
        Ok(Rows::page(found, limit, |row| {
            let (kind, hash) = row.subject.clone().unwrap_or_default();
            format!("{} {} {} {kind} {hash}", row.minute_ms, row.tenant, row.limit)
        }))
    }

    fn sums(&self) -> MutexGuard<'_, HashMap<Key, Sum>> {
        self.sums.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Adds a call to its sum; false where there is no room for another one.
fn add(sums: &mut HashMap<Key, Sum>, key: Key, deed: Deed) -> bool {
    let has_room = sums.len() < SUMS_MAX;
    let sum = match sums.entry(key) {
        Entry::Occupied(known) => known.into_mut(),
        Entry::Vacant(_) if !has_room => return false,
        Entry::Vacant(new) => {
            new.insert(Sum { id: Uuid::now_v7(), violations: 0, bans: 0, under_ban: 0, is_written: false })
        }
    };
    sum.violations += u64::from(deed.is_violation());
    sum.bans += u64::from(deed == Deed::LastViolation);
    sum.under_ban += u64::from(deed == Deed::UnderBan);
    sum.is_written = false;
    true
}

/// Notes what was written, and forgets minutes that are over. A later call of such a minute begins another sum.
fn forget(sums: &mut HashMap<Key, Sum>, written: Vec<(Key, Sum)>, now_ms: i64) {
    for (key, sum) in written {
        if let Some(current) = sums.get_mut(&key) {
            current.is_written = *current == sum;
        }
    }
    sums.retain(|key, sum| !sum.is_written || key.minute_ms + MINUTE_MS > now_ms);
}

fn minute(key: &Key, sum: &Sum) -> MinuteOfViolations {
    let subject = key.subject.as_ref();
    MinuteOfViolations {
        minute_ms: key.minute_ms,
        tenant: key.tenant.clone(),
        limit: key.limit.clone(),
        subject: subject.map(|(kind, hash)| (kind.to_string(), hash.digits().to_owned())),
        violations: sum.violations,
        bans: sum.bans,
        under_ban: sum.under_ban,
    }
}

fn place(text: &str) -> Answer<ViolationCursor> {
    let parts: Vec<_> = text.split(' ').map(str::to_owned).collect();
    let Ok([minute_ms, tenant, limit, kind, hash]) = <[String; 5]>::try_from(parts) else {
        return Err(OperationError::bad_cursor());
    };
    Ok((minute_ms.parse().map_err(|_| OperationError::bad_cursor())?, tenant, limit, kind, hash))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(minute: i64, limit: &str) -> Key {
        Key {
            minute_ms: minute * MINUTE_MS,
            tenant: TenantId::parse("acme").unwrap(),
            limit: LimitId::parse(limit).unwrap(),
            subject: None,
        }
    }

    #[test]
    fn what_comes_while_a_minute_is_written_is_written_with_the_next_turn_under_the_same_id() {
        let mut sums = HashMap::new();
        assert!(add(&mut sums, key(1, "day"), Deed::Violation));
        let written: Vec<_> = sums.clone().into_iter().collect();
        assert!(add(&mut sums, key(1, "day"), Deed::LastViolation));
        assert!(add(&mut sums, key(1, "day"), Deed::UnderBan));
        forget(&mut sums, written.clone(), 9 * MINUTE_MS);
        let sum = sums[&key(1, "day")];
        assert_eq!((sum.violations, sum.bans, sum.under_ban, sum.is_written), (2, 1, 1, false));
        assert_eq!(sum.id, written[0].1.id);
    }

    #[test]
    fn a_minute_that_is_over_is_forgotten_once_it_is_written_and_a_late_call_begins_another_sum() {
        let mut sums = HashMap::new();
        add(&mut sums, key(1, "day"), Deed::Violation);
        let written: Vec<_> = sums.clone().into_iter().collect();
        forget(&mut sums, written.clone(), 2 * MINUTE_MS - 1);
        assert_eq!(sums.len(), 1, "the minute goes on");
        forget(&mut sums, Vec::new(), 2 * MINUTE_MS);
        assert!(sums.is_empty());
        add(&mut sums, key(1, "day"), Deed::Violation);
        assert_ne!(sums[&key(1, "day")].id, written[0].1.id);
    }

    #[test]
    fn there_are_never_more_sums_than_have_room_and_known_ones_go_on() {
        let mut sums = HashMap::new();
        for number in 0..SUMS_MAX {
            assert!(add(&mut sums, key(1, &number.to_string()), Deed::Violation));
        }
        assert!(!add(&mut sums, key(1, "more"), Deed::Violation));
        assert!(add(&mut sums, key(1, "0"), Deed::Violation));
        assert_eq!((sums.len(), sums[&key(1, "0")].violations), (SUMS_MAX, 2));
    }
}
