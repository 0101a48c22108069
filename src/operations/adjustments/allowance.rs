//! Adjustments that lower the allowance: they void grants, the one that burns last first.

use std::collections::{HashMap, HashSet};

use rust_decimal::Decimal;

use super::{Adjustments, meter_of, reason};
use crate::domain::adjustment::AdjustmentTerms;
use crate::domain::amount::Amount;
use crate::domain::grant::{GrantId, GrantRollover, GrantTerms, Recurrence};
use crate::domain::signed_amount::SignedAmount;
use crate::ledger::{AdjustmentGrant, GrantLeft, Lowered, StoredAdjustment, StoredGrant};
use crate::operations::error::{Answer, OperationError};
use crate::operations::memory::quota_period;
use crate::operations::policy_store::TenantEntry;

impl Adjustments {
    /// Checks that there is a quota whose allowance can be corrected, and as much left as is to be taken.
    pub(super) async fn check_allowance(&self, entry: &TenantEntry, terms: &AdjustmentTerms) -> Answer<()> {
        let (tenant, meter) = (&terms.tenant, meter_of(terms)?);
        let Some(quota) = quota_period(entry, meter, self.core.gate_now_ms()) else {
            let why = format!("{tenant} has no quota of {meter}, so there is no allowance to correct");
            return Err(OperationError::field("/meter", why));
        };
        if !terms.amount.is_negative() {
            return Ok(());
        }
        let left: Decimal = self.voidable(terms).await?.iter().map(|grant| grant.remaining).sum();
        if terms.amount.size().decimal() <= left {
            return Ok(());
        }
        let left = left.round_dp(u32::from(quota.decimals.count())).normalize();
        Err(OperationError::field(
            "/amount",
            format!(
                "{left} is left of the grants of {tenant}: what the plan includes is lowered by another plan"
            ),
        ))
    }

    /// The grants that may be voided now, in burn order, with what is left of each.
    async fn voidable(&self, terms: &AdjustmentTerms) -> Answer<Vec<GrantLeft>> {
        let (tenant, meter) = (&terms.tenant, meter_of(terms)?);
        Ok(self.core.ledger.voidable_grants(tenant, meter, self.core.gate_now_ms()).await?)
    }

    /// Voids grants against the burn order until their unburnt parts make up the amount, and grants again what the last
    /// of them had beyond it. One that was booked before voids no further ones. None where something of it can only be
    /// done later: what is unburnt of a grant is not booked, or another adjustment is at work on the same grants.
    pub(super) async fn lower(&self, stored: &StoredAdjustment, actor: &str) -> Answer<Option<Lowered>> {
        let wanted = stored.terms.amount.size().decimal();
        let mut noted = stored.grants.clone();
        if noted.is_empty() && self.core.ledger.has_adjustment_before(stored).await? {
            return Ok(None);
        }
        let (mut ended, mut left) = (HashMap::new(), Vec::new());
        loop {
            if !self.void_all(&noted, &mut ended, actor).await? {
                return Ok(None);
            }
            let (mut voided, mut settled, mut last) = (Decimal::ZERO, Decimal::ZERO, None);
            for note in &noted {
                if !note.is_voided {
                    let beyond = self.give_back(note.id, last, stored, voided - wanted, actor).await?;
                    voided -= beyond;
                    continue;
                }
                // A grant that ended by itself was taken away by nobody.
                if let Some(taken) = ended.get(&note.id).filter(|grant| grant.voided_at_ms.is_some()) {
                    let amount = taken.settled_amount.unwrap_or_default().decimal();
                    (voided, settled) = (voided + amount, settled + amount);
                    last = Some(taken);
                }
            }
            let lowered = |changed| {
                let changed = SignedAmount::from_decimal(changed);
                Ok(Some(Lowered { changed, voided: settled, notes: noted.len() }))
            };
            let is_voided = voided < wanted;
            // What is to be granted again would have ended by now.
            let is_over = |taken: &StoredGrant| taken.expires_at_ms <= self.core.gate_now_ms();
            if voided > wanted && last.is_some_and(is_over) {
                return lowered(-wanted);
            }
            let place = i16::try_from(noted.len()).unwrap_or(i16::MAX);
            let next = if is_voided && stored.booked_amount.is_some() {
                None
            } else if is_voided {
                self.next_to_void(&stored.terms, &noted, &mut left).await?
            } else {
                (voided > wanted).then(|| stored.id.grant_at(place))
            };
            let Some(id) = next else { return lowered(-voided) };
            let (note, before) = (AdjustmentGrant { place, id, is_voided }, noted.len());
            noted = self.core.ledger.note_adjustment_grant(stored, note).await?;
            if noted.len() == before {
                return Ok(None);
            }
        }
    }

    /// The grant that burns last of those that are not noted yet. `left` has what an earlier look has found: of these,
    /// one that has ended since was taken by somebody else.
    async fn next_to_void(
        &self,
        terms: &AdjustmentTerms,
        noted: &[AdjustmentGrant],
        left: &mut Vec<GrantId>,
    ) -> Answer<Option<GrantId>> {
        let noted: HashSet<GrantId> = noted.iter().map(|note| note.id).collect();
        let last = |left: &[GrantId]| left.iter().rev().copied().find(|id| !noted.contains(id));
        while let Some(id) = last(left.as_slice()) {
            let counts = |grant: &StoredGrant| grant.voided_at_ms.is_none() && grant.settled_at_ms.is_none();
            if self.core.ledger.grant(id).await?.is_some_and(|grant| counts(&grant)) {
                return Ok(Some(id));
            }
            left.retain(|other| *other != id);
        }
        *left = self.voidable(terms).await?.iter().map(|grant| grant.id).collect();
        Ok(last(left.as_slice()))
    }

    /// Ends all of these that are to be voided, but for those that `ended` has already. Returns false while what is
    /// unburnt of one is not booked.
    async fn void_all(
        &self,
        noted: &[AdjustmentGrant],
        ended: &mut HashMap<GrantId, StoredGrant>,
        actor: &str,
    ) -> Answer<bool> {
        for note in noted.iter().filter(|note| note.is_voided) {
            if ended.contains_key(&note.id) {
                continue;
            }
            let Some(grant) = self.void(note.id, actor).await? else { return Ok(false) };
            ended.insert(note.id, grant);
        }
        Ok(true)
    }

    /// Ends a grant; none while what is unburnt of it is not booked. One that is what a plan includes more, which
    /// earlier versions noted too, stays as it is.
    async fn void(&self, id: GrantId, actor: &str) -> Answer<Option<StoredGrant>> {
        let is_settled = |grant: &StoredGrant| grant.settled_at_ms.is_some();
        if let Some(ended) = self.core.ledger.grant(id).await?.filter(is_settled) {
            return Ok(Some(ended));
        }
        match self.grants.void(id, actor).await {
            Ok(_) | Err(OperationError::GrantEnded(_)) => {}
            Err(OperationError::InUse(_)) => return Ok(self.core.ledger.grant(id).await?),
            Err(error) => return Err(error),
        }
        Ok(self.core.ledger.grant(id).await?.filter(is_settled))
    }

    /// Grants again what was voided beyond the amount, on the terms of the grant that had it. Returns how much that is.
    async fn give_back(
        &self,
        id: GrantId,
        of: Option<&StoredGrant>,
        stored: &StoredAdjustment,
        beyond: Decimal,
        actor: &str,
    ) -> Answer<Decimal> {
        if let Some(made) = self.core.ledger.grant(id).await? {
            return Ok(made.amount.decimal());
        }
        let (Some(of), Ok(amount)) = (of, Amount::from_decimal(beyond)) else { return Ok(Decimal::ZERO) };
        let terms = GrantTerms {
            tenant: of.tenant.clone(),
            meter: of.meter.clone(),
            amount,
            kind: of.kind,
            price: of.price.and_then(|price| price.of_part(amount, of.amount)),
            priority: of.priority,
            effective_at_ms: None,
            expires_at_ms: of.expires_at_ms,
            recurrence: Recurrence::None,
            rollover: GrantRollover { min: of.rollover.min.min(amount), ..of.rollover },
            reason: reason(stored),
        };
        match self.grants.make(id, terms, actor).await {
            // It would have expired by now.
            Ok(_) | Err(OperationError::Invalid(_)) => Ok(beyond),
            Err(error) => Err(error),
        }
    }
}
