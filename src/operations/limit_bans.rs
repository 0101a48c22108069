//! Bans that limits have placed. The gate alone has them: they are read and lifted there. Their list has those of
//! admins too.

use std::sync::Arc;

use serde_json::Value;

use crate::domain::ids::TenantId;
use crate::domain::reservation::SubjectHash;
use crate::gate::LimitBan;
use crate::operations::answers::{PlacedBan, Rows};
use crate::operations::core::Core;
use crate::operations::error::{Answer, OperationError};
use crate::operations::memory::Memory;
use crate::operations::policy::PolicyVerbs;
use crate::operations::requests::{BansRequest, Page, PlacedBy};

/// The detail for a caller whose last try failed.
const KEPT_CHANGING: &str = "the gate's memory kept changing under this call; repeat it";

/// A cursor that begins so is a place among the bans of limits. Those of admins come before, and theirs are places in a
/// list of items.
const OF_LIMITS: &str = "limits ";

/// A place among bans of limits: the end of the last one that was read (unix ms), and how many that end then were read.
type Place = (Option<i64>, usize);

/// A ban in a list.
#[derive(Debug, Clone, PartialEq)]
pub enum ListedBan {
    /// An admin has placed it: its definition with its tenant.
    OfAdmin(Value),
    /// A limit has placed it.
    OfLimit(TenantId, PlacedBan),
}

/// Lists bans, and lifts those that limits have placed.
pub struct LimitBans {
    core: Arc<Core>,
    policy: Arc<PolicyVerbs>,
    memory: Arc<Memory>,
}

impl LimitBans {
    pub(super) fn new(core: Arc<Core>, policy: Arc<PolicyVerbs>, memory: Arc<Memory>) -> Self {
        Self { core, policy, memory }
    }

    /// A page of bans: those of admins, by tenant and id; of one tenant then those of limits, those that end last
    /// first.
    pub async fn list(&self, request: BansRequest) -> Answer<Rows<ListedBan>> {
        let BansRequest { tenant, placed_by, page } = request;
        let Some(tenant) = tenant.clone().filter(|_| placed_by != Some(PlacedBy::Admin)) else {
            return Ok(self.policy.list_bans(tenant.as_ref(), page).await?.map(ListedBan::OfAdmin));
        };
        let after = page.after.as_deref().and_then(|after| after.strip_prefix(OF_LIMITS));
        let mut place = after.filter(|after| !after.is_empty()).map_or(Ok((None, 0)), place)?;
        let mut data = Vec::new();
        if placed_by.is_none() && after.is_none() {
            let of_admins = self.policy.list_bans(Some(&tenant), page.clone()).await?.map(ListedBan::OfAdmin);
            if of_admins.next.is_some() {
                return Ok(of_admins);
            }
            data = of_admins.data;
        }
        let room = page.rows_max() - data.len();
        let mut of_limits = self.read(&tenant, place, room + 1).await?;
        let has_more = of_limits.len() > room;
        of_limits.truncate(room);
        if room > 0 {
            place = following(&of_limits, place);
        }
        data.extend(of_limits.into_iter().map(|placed| ListedBan::OfLimit(tenant.clone(), placed)));
        Ok(Rows { data, next: has_more.then(|| written(place)), as_of_ms: None })
    }

    /// The ban of this name; an error where there is none, or it has ended.
    pub async fn get(&self, tenant: &TenantId, ban: &LimitBan) -> Answer<PlacedBan> {
        let count = usize::try_from(Page::ROWS_MAX).unwrap_or(1);
        let mut place = (None, 0);
        loop {
            let found = self.read(tenant, place, count).await?;
            if let Some(found) = found.iter().find(|placed| placed.ban == *ban) {
                return Ok(found.clone());
            }
            if found.len() < count {
                return Err(no_such_ban());
            }
            place = following(&found, place);
        }
    }

    /// The bans of a subject that limits have placed and that have not ended.
    pub(super) async fn of_subject(&self, tenant: &TenantId, hash: SubjectHash) -> Answer<Vec<LimitBan>> {
        let count = usize::try_from(Page::ROWS_MAX).unwrap_or(1);
        let (mut place, mut bans) = ((None, 0), Vec::new());
        loop {
            let found = self.read(tenant, place, count).await?;
            let its = |placed: &&PlacedBan| placed.ban.subject.as_ref().is_some_and(|(_, of)| *of == hash);
            bans.extend(found.iter().filter(its).map(|placed| placed.ban.clone()));
            if found.len() < count {
                return Ok(bans);
            }
            place = following(&found, place);
        }
    }

    /// Lifts the ban of this name at the gate, so for every instance. The limit forgets what has led to it.
    ///
    /// Errors: there is none, or it has ended; the audit log cannot be written.
    pub async fn lift(&self, tenant: &TenantId, ban: &LimitBan, actor: &str) -> Answer<()> {
        self.get(tenant, ban).await?;
        let entry = self.core.policy.named_tenant(tenant).await?;
        self.core.ledger.note_ban_lifted(actor, tenant, &ban.to_string()).await?;
        let mut recovery = self.memory.recovery(KEPT_CHANGING);
        loop {
            let now = self.core.script_now();
            match self.core.gate.lift_limit_ban(entry.partition, tenant, ban, now).await {
                Ok(true) => return Ok(()),
                Ok(false) => return Err(no_such_ban()),
                Err(error) => {
                    if let Some(away) = recovery.after_failure(error).await? {
                        return Err(away.into());
                    }
                }
            }
        }
    }

    async fn read(&self, tenant: &TenantId, place: Place, count: usize) -> Answer<Vec<PlacedBan>> {
        let entry = self.core.policy.named_tenant(tenant).await?;
        let mut recovery = self.memory.recovery(KEPT_CHANGING);
        loop {
            let now = self.core.script_now();
            match self.core.gate.limit_bans(entry.partition, tenant, place, count, now).await {
                Ok(found) => return Ok(found),
                Err(error) => {
                    if let Some(away) = recovery.after_failure(error).await? {
                        return Err(away.into());
                    }
                }
            }
        }
    }
}

fn no_such_ban() -> OperationError {
    OperationError::NotFound("there is no such ban, or it has ended".into())
}

/// The place after these bans, which begin at `before`.
fn following(read: &[PlacedBan], before: Place) -> Place {
    let last_ms = read.last().map(|last| last.until_ms);
    let then = read.iter().rev().take_while(|placed| Some(placed.until_ms) == last_ms).count();
    let goes_on = last_ms == before.0;
    (last_ms, if goes_on { before.1 + then } else { then })
}

/// A place among the bans of limits as text; at their beginning, only that they come next.
fn written((last_ms, then): Place) -> String {
    last_ms.map_or_else(|| OF_LIMITS.to_owned(), |last_ms| format!("{OF_LIMITS}{last_ms} {then}"))
}

fn place(text: &str) -> Answer<Place> {
    let read = || {
        let (last_ms, then) = text.split_once(' ')?;
        Some((Some(last_ms.parse().ok()?), then.parse().ok()?))
    };
    read().ok_or_else(OperationError::bad_cursor)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bans(ends: &[i64]) -> Vec<PlacedBan> {
        let ban = LimitBan::parse("day~sAAbb01-_").unwrap();
        ends.iter().map(|until_ms| PlacedBan { ban: ban.clone(), until_ms: *until_ms }).collect()
    }

    #[test]
    fn the_place_after_a_page_says_how_many_of_its_last_end_were_read() {
        assert_eq!(following(&bans(&[30, 20, 20]), (None, 0)), (Some(20), 2));
        assert_eq!(following(&bans(&[20, 20]), (Some(20), 2)), (Some(20), 4));
        assert_eq!(following(&bans(&[20, 10]), (Some(20), 4)), (Some(10), 1));
        assert_eq!(place(written((Some(20), 2)).strip_prefix(OF_LIMITS).unwrap()).unwrap(), (Some(20), 2));
        assert!(place("20").is_err() && place("x 2").is_err());
    }
}
