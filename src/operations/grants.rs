//! Grants: amounts beside what a plan includes.

use std::sync::Arc;

use crate::domain::grant::{GrantId, GrantTerms};
use crate::domain::ids::MeterId;
use crate::domain::instant::rfc3339;
use crate::ledger::{Granted, NewGrant, QuotaPeriod, StoredGrant};
use crate::operations::answers::{GrantDetails, GrantState, Rows};
use crate::operations::core::Core;
use crate::operations::damage::Work;
use crate::operations::error::{Answer, FieldError, OperationError};
use crate::operations::memory::{Memory, quota_of};
use crate::operations::policy_store::TenantEntry;
use crate::operations::requests::{GrantRequest, GrantsRequest};

/// How many grants that have begun are read at once.
const PAGE: usize = 500;

/// Makes and lists grants.
pub struct GrantVerbs {
    core: Arc<Core>,
    memory: Arc<Memory>,
}

/// What following the grants has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FollowedGrants {
    /// Grants that have begun and were booked.
    pub begun: u64,
    /// Capacities that the gate has got.
    pub told: u64,
}

impl GrantVerbs {
    pub(super) fn new(core: Arc<Core>, memory: Arc<Memory>) -> Self {
        Self { core, memory }
    }

    /// Makes a grant, once under its key, and sends the capacity to the gate. Where the gate is away, the grant is made
    /// all the same; the gate gets it later.
    pub async fn create(&self, request: GrantRequest, actor: &str) -> Answer<GrantDetails> {
        let GrantRequest { key, terms } = request;
        let id = GrantId::of(&terms.tenant, &key);
        let fingerprint = terms.fingerprint();
        if let Some(stored) = self.core.ledger.grant(id).await? {
            return self.repeated(stored, fingerprint);
        }
        let entry = self.core.policy.tenant(&terms.tenant).await?;
        let now_ms = self.core.gate_now_ms();
        let effective_at_ms = terms.effective_at_ms.unwrap_or(now_ms);
        let period = self.period_of(&entry, &terms, effective_at_ms)?;
        check(&entry, &terms, effective_at_ms, now_ms, &period)?;
        let new = NewGrant { id, terms, effective_at_ms, now_ms, period };
        match self.core.ledger.create_grant(new, actor).await? {
            Granted::Now(stored) => {
                self.send(&entry, &stored).await;
                Ok(self.details(stored, false))
            }
            Granted::Before(stored) => self.repeated(stored, fingerprint),
            Granted::TooMuch => Err(OperationError::field(
                "/amount",
                "with what is included and the other grants it is beyond the largest amount",
            )),
        }
    }

    /// The grant with this id.
    pub async fn get(&self, id: GrantId) -> Answer<GrantDetails> {
        let found = self.core.ledger.grant(id).await?;
        let stored = found.ok_or_else(|| OperationError::NotFound("there is no such grant".into()))?;
        Ok(self.details(stored, false))
    }

    /// Grants, newest first.
    pub async fn list(&self, request: GrantsRequest) -> Answer<Rows<GrantDetails>> {
        let limit = request.page.rows_max();
        let after = request.page.after.as_deref().map(place).transpose()?;
        let rows = self.core.ledger.list_grants(request.tenant.as_ref(), after, limit + 1).await?;
        let page = Rows::page(rows, limit, |row| format!("{}:{}", row.created_at_ms, row.id));
        Ok(page.map(|stored| self.details(stored, false)))
    }

    /// Books the grants that have begun, and sends the gate what it lacks of capacities.
    pub async fn follow(&self) -> Answer<FollowedGrants> {
        let begun = self.begin_due().await?;
        let told = self.memory.send_untold_capacities().await?;
        Ok(FollowedGrants { begun, told })
    }

    async fn begin_due(&self) -> Answer<u64> {
        let now_ms = self.core.gate_now_ms();
        let (mut begun, mut after) = (0, None);
        loop {
            let due = self.core.ledger.grants_to_begin(now_ms, after, PAGE).await?;
            let Some(last) = due.last() else { return Ok(begun) };
            after = Some((last.effective_at_ms, last.id));
            for stored in due {
                let item = format!("grant {} of tenant {}", stored.id, stored.tenant);
                match self.begin(stored, now_ms).await {
                    Ok(true) => begun += 1,
                    Ok(false) => {}
                    Err(error) if error.is_server_away() => return Err(error),
                    Err(error) => self.core.damage.pass_over(Work::Capacity, &item, &error).await,
                }
            }
        }
    }

    /// Books a grant that has begun. One whose tenant no longer has such a quota waits until it has one again.
    async fn begin(&self, stored: StoredGrant, now_ms: i64) -> Answer<bool> {
        let Some(entry) = self.core.policy.find_tenant(&stored.tenant).await? else { return Ok(false) };
        let Some(period) = quota_period(&entry, &stored.meter, stored.effective_at_ms) else {
            return Ok(false);
        };
        Ok(self.core.ledger.begin_grant(stored, period, now_ms).await?)
    }

    /// Sends the capacity; what cannot be sent now stays noted in the ledger, and the job sends it.
    async fn send(&self, entry: &TenantEntry, stored: &StoredGrant) {
        if let Err(error) = self.memory.send_capacity(entry, &stored.meter, 0).await {
            tracing::warn!(tenant = %stored.tenant, grant = %stored.id, %error, "the gate gets a grant later");
        }
    }

    fn period_of(
        &self,
        entry: &TenantEntry,
        terms: &GrantTerms,
        effective_at_ms: i64,
    ) -> Answer<QuotaPeriod> {
        quota_period(entry, &terms.meter, effective_at_ms).ok_or_else(|| {
            let tenant = &terms.tenant;
            let why =
                format!("{tenant} has no quota of {}: a grant adds to the quota of a plan", terms.meter);
            OperationError::field("/meter", why)
        })
    }

    fn repeated(&self, stored: StoredGrant, fingerprint: [u8; 32]) -> Answer<GrantDetails> {
        if stored.fingerprint != fingerprint {
            return Err(OperationError::GrantKeyReused(stored.id));
        }
        Ok(self.details(stored, true))
    }

    fn details(&self, stored: StoredGrant, replayed: bool) -> GrantDetails {
        let now_ms = self.core.gate_now_ms();
        let state = match stored {
            _ if now_ms < stored.effective_at_ms => GrantState::Scheduled,
            _ if now_ms < stored.expires_at_ms => GrantState::Active,
            _ => GrantState::Expired,
        };
        GrantDetails { stored, state, replayed }
    }
}

/// The quota's period around `at_ms`, as policy has it now.
fn quota_period(entry: &TenantEntry, meter: &MeterId, at_ms: i64) -> Option<QuotaPeriod> {
    let quota = quota_of(entry, meter, at_ms)?;
    let window = quota.window()?;
    Some(QuotaPeriod {
        decimals: quota.decimals,
        period_ms: (window.start_ms, window.end_ms),
        included: quota.capacity,
    })
}

/// Checks what the terms say of the tenant, the amount and the dates.
fn check(
    entry: &TenantEntry,
    terms: &GrantTerms,
    effective_at_ms: i64,
    now_ms: i64,
    period: &QuotaPeriod,
) -> Answer<()> {
    let mut faults = Vec::new();
    let mut fault = |pointer: &str, message: String| faults.push(FieldError::new(pointer, message));
    if entry.definition.archived {
        fault("/tenant", format!("{} is archived", entry.definition.id));
    }
    match terms.amount.to_units(period.decimals) {
        Ok(_) if terms.amount.is_zero() => fault("/amount", "must be more than zero".into()),
        Ok(_) => {}
        Err(error) => fault("/amount", error.to_string()),
    }
    let open_start_ms = entry.calendars.windows(now_ms).period.start_ms;
    if effective_at_ms < open_start_ms {
        fault("/effective_at", format!("must not be before the open period, {}", rfc3339(open_start_ms)));
    }
    let end_ms = period.period_ms.1;
    if effective_at_ms >= open_start_ms && terms.expires_at_ms != end_ms {
        let message = format!(
            "must be {}, the end of the period in which it begins: a grant that ends earlier or goes on is not served yet",
            rfc3339(end_ms)
        );
        fault("/expires_at", message);
    }
    if faults.is_empty() { Ok(()) } else { Err(OperationError::Invalid(faults)) }
}

fn place(text: &str) -> Answer<(i64, GrantId)> {
    let (at, id) = text.split_once(':').ok_or_else(OperationError::bad_cursor)?;
    let at_ms = at.parse().map_err(|_| OperationError::bad_cursor())?;
    Ok((at_ms, id.parse().map_err(|_| OperationError::bad_cursor())?))
}
