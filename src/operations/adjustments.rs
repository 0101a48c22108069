//! Adjustments: corrections that finance posts, approved by another person where they are large.

mod unbilled;
mod usage;

use std::sync::Arc;

use rust_decimal::Decimal;

use crate::domain::adjustment::{AdjustmentEffect, AdjustmentId, AdjustmentState, AdjustmentTerms};
use crate::domain::amount::Amount;
use crate::domain::grant::{GrantId, GrantKind, GrantRollover, GrantTerms, Priority, Recurrence};
use crate::domain::ids::{IdempotencyKey, MeterId, Partition, ReservationId};
use crate::domain::period::WindowKind;
use crate::domain::signed_amount::SignedAmount;
use crate::ledger::{
    AdjustmentGrant, BookedAs, Decided, Lowered, NewAdjustment, ParkedState, Posted, StoredAdjustment,
    StoredGrant, Verdict,
};
use crate::operations::answers::AdjustmentDetails;
use crate::operations::calls::Calls;
use crate::operations::core::Core;
use crate::operations::damage::Work;
use crate::operations::error::{Answer, FieldError, OperationError};
use crate::operations::grants::GrantVerbs;
use crate::operations::left_partitions::LeftPartitions;
use crate::operations::memory::{Memory, quota_period};
use crate::operations::policy_store::TenantEntry;

use self::unbilled::unbilled;
use self::usage::unbookable;

/// How many approved adjustments are read at once.
const PAGE: usize = 500;
/// How many grants of a meter an adjustment looks at.
const GRANTS_MAX: usize = 500;

/// Posts and decides adjustments.
pub struct Adjustments {
    core: Arc<Core>,
    memory: Arc<Memory>,
    grants: GrantVerbs,
    calls: Arc<Calls>,
    /// What is larger has to be approved.
    approval_above: Amount,
}

impl Adjustments {
    pub(super) fn new(
        core: Arc<Core>,
        memory: Arc<Memory>,
        calls: Arc<Calls>,
        approval_above: Amount,
    ) -> Self {
        let grants = GrantVerbs::new(core.clone(), memory.clone());
        Self { core, memory, grants, calls, approval_above }
    }

    /// Posts an adjustment, once under its key. It is booked at once unless another person has to approve it.
    ///
    /// Errors: what it says cannot be booked.
    pub async fn post(
        &self,
        key: &IdempotencyKey,
        terms: AdjustmentTerms,
        actor: &str,
    ) -> Answer<AdjustmentDetails> {
        let id = AdjustmentId::of(&terms.tenant, key);
        if let Some(stored) = self.core.ledger.adjustment(id).await? {
            return repeated(stored, &terms);
        }
        let entry = self.core.policy.tenant(&terms.tenant).await?;
        self.check(&entry, &terms).await?;
        let booked_as = self.booked_as(&entry, id, &terms)?;
        let needs_approval = terms.amount.size() > self.approval_above;
        self.know_where_use_stands(entry.partition, &terms).await?;
        let now_ms = self.core.clock.now_ms();
        let new = NewAdjustment { id, terms: terms.clone(), booked_as, needs_approval, now_ms };
        let mut posted = self.core.ledger.post_adjustment(new.clone(), actor).await?;
        if matches!(&posted, Posted::Refused(why) if why.may_pass()) {
            self.catch_up(entry.partition).await?;
            posted = self.core.ledger.post_adjustment(new, actor).await?;
        }
        self.core.unadjusted.forget(&terms.tenant).await;
        match posted {
            Posted::Now(stored) => self.carried_out(stored, actor).await,
            Posted::Before(stored) => repeated(stored, &terms),
            Posted::Refused(why) => Err(unbookable(&why)),
        }
    }

    /// The adjustment with this id.
    pub async fn get(&self, id: AdjustmentId) -> Answer<AdjustmentDetails> {
        Ok(AdjustmentDetails { stored: self.known(id).await?, replayed: false })
    }

    /// Approves an adjustment: it is booked. A repeat changes nothing.
    ///
    /// Errors: it was posted by the same key; it was declined; it cannot be booked any more.
    pub async fn approve(&self, id: AdjustmentId, actor: &str) -> Answer<AdjustmentDetails> {
        let decided = self.decide(id, true, actor).await?;
        if decided.stored.state == AdjustmentState::Declined {
            return Err(OperationError::AdjustmentDecided("declined"));
        }
        Ok(decided)
    }

    /// Declines an adjustment: it is never booked. A repeat changes nothing.
    ///
    /// Errors: it is approved.
    pub async fn decline(&self, id: AdjustmentId, actor: &str) -> Answer<AdjustmentDetails> {
        let decided = self.decide(id, false, actor).await?;
        if decided.stored.state != AdjustmentState::Declined {
            return Err(OperationError::AdjustmentDecided("approved"));
        }
        Ok(decided)
    }

    /// How many that are approved would be carried out now.
    pub async fn due(&self) -> Answer<u64> {
        let (mut due, mut after) = (0, None);
        loop {
            let page = self.core.ledger.adjustments_to_carry_out(after, PAGE).await?;
            let Some(last) = page.last() else { return Ok(due) };
            after = Some((last.posted_at_ms, last.id));
            due += u64::try_from(page.len()).unwrap_or(u64::MAX);
        }
    }

    /// Carries out what is approved and could not be booked at once. Returns how many are booked now.
    pub async fn follow(&self) -> Answer<u64> {
        let (mut done, mut left, mut after) = (0, LeftPartitions::default(), None);
        loop {
            // Those that have to wait are due again in the next run; no later one waits for them.
            let page = self.core.ledger.adjustments_to_carry_out(after, PAGE).await?;
            let Some(last) = page.last() else { return left.end_run(done) };
            after = Some((last.posted_at_ms, last.id));
            for stored in &page {
                let partition = self.core.gate.partition_of(&stored.terms.tenant);
                if left.has(partition) {
                    continue;
                }
                let actor = stored.decided_by.as_ref().unwrap_or(&stored.posted_by);
                match self.carry_out(stored, actor).await {
                    Ok(is_booked) => done += u64::from(is_booked),
                    Err(error) => {
                        let item = format!("adjustment {} of tenant {}", stored.id, stored.terms.tenant);
                        left.go_on(partition, error, (&self.core.damage, Work::Adjustment, &item)).await;
                    }
                }
            }
        }
    }

    async fn known(&self, id: AdjustmentId) -> Answer<StoredAdjustment> {
        self.core.ledger.adjustment(id).await?.ok_or_else(no_such_adjustment)
    }

    async fn decide(&self, id: AdjustmentId, approves: bool, actor: &str) -> Answer<AdjustmentDetails> {
        let found = self.known(id).await?;
        let entry = self.core.policy.tenant(&found.terms.tenant).await?;
        let booked_as = self.booked_as(&entry, id, &found.terms)?;
        if approves && found.state == AdjustmentState::Pending {
            // It may have become one since the adjustment was posted.
            if let Some(fault) = unbilled(&entry, &found.terms) {
                return Err(OperationError::Invalid(vec![fault]));
            }
            self.know_where_use_stands(entry.partition, &found.terms).await?;
        }
        let now_ms = self.core.clock.now_ms();
        let verdict = Verdict { approves, booked_as, now_ms, actor: actor.to_owned() };
        let mut decided = self.core.ledger.decide_adjustment(id, verdict.clone()).await?;
        if matches!(&decided, Some(Decided::Refused(why)) if why.may_pass()) {
            self.catch_up(entry.partition).await?;
            decided = self.core.ledger.decide_adjustment(id, verdict).await?;
        }
        self.core.unadjusted.forget(&found.terms.tenant).await;
        match decided.ok_or_else(no_such_adjustment)? {
            Decided::Now(stored) => self.carried_out(stored, actor).await,
            Decided::Before(stored) => Ok(AdjustmentDetails { stored, replayed: true }),
            Decided::SamePerson => Err(OperationError::SamePerson),
            Decided::Refused(why) => Err(unbookable(&why)),
        }
    }

    /// Waits until all use is booked of a reservation that an adjustment names: before that it is not certain in which
    /// period it stands, and a correction that is booked elsewhere stays there.
    ///
    /// Errors: a call of it is not booked, or the gate cannot be asked whether one is.
    async fn know_where_use_stands(&self, partition: Partition, terms: &AdjustmentTerms) -> Answer<()> {
        let corrects = terms.corrects.filter(|_| terms.effect == AdjustmentEffect::Usage);
        let Some(corrects) = corrects else { return Ok(()) };
        self.catch_up(partition).await?;
        let named = self.core.ledger.reservation_named(&terms.tenant, corrects).await?;
        let id = ReservationId::from_bytes(named.into_bytes());
        let known = self.core.ledger.known_together(id).await?;
        let waits = known.parked.iter().any(|call| call.state == ParkedState::Waiting);
        if waits || known.row.is_some_and(|row| row.quarantined) {
            return Err(OperationError::GateUnavailable(format!("a call of {id} is not booked yet")));
        }
        Ok(())
    }

    /// Waits until what the gate has counted by now is booked: only then it is certain what was not used.
    async fn catch_up(&self, partition: Partition) -> Answer<()> {
        let last_id = self.core.gate.partition_facts(partition).await?.last_id;
        self.core.progress.catch_up(partition, last_id.unwrap_or_default()).await
    }

    /// Checks what does not depend on what is booked meanwhile.
    async fn check(&self, entry: &TenantEntry, terms: &AdjustmentTerms) -> Answer<()> {
        let mut faults = Vec::new();
        let mut fault = |pointer: &str, message: String| faults.push(FieldError::new(pointer, message));
        let policy = self.core.policy.current();
        let meter = terms.meter.as_ref().map(|id| (id, policy.meter(id)));
        match meter {
            Some((id, None)) => fault("/meter", format!("there is no meter {id}")),
            Some((id, Some(meter))) if !meter.booked => {
                fault("/meter", format!("{id} is not booked, so there is nothing to correct"));
            }
            _ => {}
        }
        if terms.amount.is_zero() {
            fault("/amount", "must not be zero".into());
        }
        let is_money = terms.effect == AdjustmentEffect::Money;
        match (terms.currency, meter) {
            (None, _) if is_money => fault("/currency", "must say in which currency `amount` is".into()),
            (Some(_), _) if !is_money => fault("/currency", "is for an adjustment of money".into()),
            (Some(currency), _) => match currency.money_of("amount", terms.amount.size()) {
                Ok(_) => {}
                Err(error) => fault("/amount", error),
            },
            (None, None) => fault("/meter", "must say of which meter".into()),
            (None, Some((_, meter))) => {
                if let Some(Err(error)) = meter.map(|meter| terms.amount.size().to_units(meter.decimals)) {
                    fault("/amount", error.to_string());
                }
            }
        }
        if terms.happened_at_ms > self.core.gate_now_ms() {
            fault("/happened_at", "must not be later than now".into());
        }
        if let Some(operation) = terms.corrects
            && !self.core.ledger.is_operation(&terms.tenant, operation).await?
        {
            fault("/corrects", format!("{} has no such reservation, grant or adjustment", terms.tenant));
        }
        faults.extend(unbilled(entry, terms));
        if !faults.is_empty() {
            return Err(OperationError::Invalid(faults));
        }
        if terms.effect == AdjustmentEffect::Allowance {
            self.check_allowance(entry, terms).await?;
        }
        Ok(())
    }

    async fn check_allowance(&self, entry: &TenantEntry, terms: &AdjustmentTerms) -> Answer<()> {
        let (tenant, meter) = (&terms.tenant, meter_of(terms)?);
        let Some(quota) = quota_period(entry, meter, self.core.gate_now_ms()) else {
            let why = format!("{tenant} has no quota of {meter}, so there is no allowance to correct");
            return Err(OperationError::field("/meter", why));
        };
        if !terms.amount.is_negative() {
            return Ok(());
        }
        let left: Decimal = self.voidable(terms).await?.iter().map(|(_, remaining)| *remaining).sum();
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

    /// The grants that count now, the one that burns last first, with what is left of each. What recurs is not among
    /// them: to void it would end it for later periods too. Nor is what a plan includes more.
    async fn voidable(&self, terms: &AdjustmentTerms) -> Answer<Vec<(StoredGrant, Decimal)>> {
        let now_ms = self.core.gate_now_ms();
        let mut left = self.core.ledger.grants_left(&terms.tenant, now_ms, GRANTS_MAX).await?;
        let mut found = Vec::new();
        let left = left.remove(meter_of(terms)?).unwrap_or_default().into_iter().rev();
        for grant in left.filter(|grant| !grant.is_of_plan) {
            let stored = self.core.ledger.grant(grant.id).await?;
            let once = stored.filter(|stored| stored.recurrence == Recurrence::None);
            found.extend(once.map(|stored| (stored, grant.remaining)));
        }
        Ok(found)
    }

    fn booked_as(&self, entry: &TenantEntry, id: AdjustmentId, terms: &AdjustmentTerms) -> Answer<BookedAs> {
        Ok(match terms.effect {
            AdjustmentEffect::Usage => BookedAs::Usage(self.corrected(entry, id, terms)?),
            AdjustmentEffect::Money => {
                BookedAs::Money(entry.calendars.window(WindowKind::Period, self.core.gate_now_ms()))
            }
            AdjustmentEffect::Allowance => BookedAs::Grants,
        })
    }

    /// The adjustment once what is approved of it is carried out. Where a server is away, the job does it later.
    async fn carried_out(&self, stored: StoredAdjustment, actor: &str) -> Answer<AdjustmentDetails> {
        if stored.state != AdjustmentState::Approved {
            return Ok(AdjustmentDetails { stored, replayed: false });
        }
        match self.carry_out(&stored, actor).await {
            Ok(_) => {}
            Err(error @ OperationError::Invalid(_)) => return Err(error),
            Err(error) => {
                tracing::warn!(tenant = %stored.terms.tenant, adjustment = %stored.id, %error, "it is booked later");
            }
        }
        self.get(stored.id).await
    }

    /// Changes the allowance, or what was used, as is approved. Each step is noted before it is done and is safe to
    /// repeat, so that a run may end anywhere. Returns whether all of it is booked.
    async fn carry_out(&self, stored: &StoredAdjustment, actor: &str) -> Answer<bool> {
        if stored.terms.effect == AdjustmentEffect::Usage {
            return self.correct(stored).await;
        }
        let now_ms = self.core.clock.now_ms();
        if stored.terms.amount.is_negative() {
            let Some(lowered) = self.lower(stored, actor).await? else { return Ok(false) };
            return Ok(self.core.ledger.note_lowered(stored.id, lowered, now_ms).await?);
        }
        let raised = self.raise(stored, actor).await;
        match &raised {
            Ok(Some(amount)) => {
                let booked = SignedAmount::from_decimal(*amount);
                self.core.ledger.note_adjusted(stored.id, Some(booked), now_ms).await?;
            }
            Ok(None) => {}
            // What cannot be granted never will be.
            Err(OperationError::Invalid(_)) => {
                self.core.ledger.note_adjusted(stored.id, None, now_ms).await?;
            }
            Err(_) => {}
        }
        raised.map(|amount| amount.is_some())
    }

    /// Grants the amount until the end of the open period. Returns it; none where another run has decided meanwhile
    /// that it cannot be granted.
    async fn raise(&self, stored: &StoredAdjustment, actor: &str) -> Answer<Option<Decimal>> {
        let terms = &stored.terms;
        let note = AdjustmentGrant { place: 0, id: stored.id.grant_at(0), is_voided: false };
        self.core.ledger.note_adjustment_grant(stored, note).await?;
        if self.core.ledger.grant(note.id).await?.is_none() {
            if self.known(stored.id).await?.state != AdjustmentState::Approved {
                return Ok(None);
            }
            let entry = self.core.policy.tenant(&terms.tenant).await?;
            let period = entry.calendars.window(WindowKind::Period, self.core.gate_now_ms());
            let grant = GrantTerms {
                tenant: terms.tenant.clone(),
                meter: meter_of(terms)?.clone(),
                amount: terms.amount.size(),
                kind: GrantKind::Promotional,
                price: None,
                priority: Priority::default(),
                effective_at_ms: None,
                expires_at_ms: period.end_ms,
                recurrence: Recurrence::None,
                rollover: GrantRollover::default(),
                reason: reason(stored),
            };
            self.grants.make(note.id, grant, actor).await?;
        }
        Ok(Some(terms.amount.decimal()))
    }

    /// Voids grants against the burn order until their unburnt parts make up the amount, and grants again what the last
    /// of them had beyond it. One that was booked before voids no further ones. None where something of it can only be
    /// done later: what is unburnt of a grant is not booked, or another adjustment is at work on the same grants.
    async fn lower(&self, stored: &StoredAdjustment, actor: &str) -> Answer<Option<Lowered>> {
        let wanted = stored.terms.amount.size().decimal();
        let mut noted = stored.grants.clone();
        if noted.is_empty() && self.core.ledger.has_adjustment_before(stored).await? {
            return Ok(None);
        }
        loop {
            let (mut voided, mut settled, mut last) = (Decimal::ZERO, Decimal::ZERO, None);
            for note in &noted {
                if !note.is_voided {
                    let beyond =
                        self.give_back(note.id, last.as_ref(), stored, voided - wanted, actor).await?;
                    voided -= beyond;
                    continue;
                }
                let Some(ended) = self.void(note.id, actor).await? else { return Ok(None) };
                // A grant that ended by itself was taken away by nobody.
                if ended.voided_at_ms.is_some() {
                    let amount = ended.settled_amount.unwrap_or_default().decimal();
                    (voided, settled) = (voided + amount, settled + amount);
                    last = Some(ended);
                }
            }
            let lowered = |changed| {
                let changed = SignedAmount::from_decimal(changed);
                Ok(Some(Lowered { changed, voided: settled, notes: noted.len() }))
            };
            let is_voided = voided < wanted;
            // What is to be granted again would have ended by now.
            let is_over = |ended: &StoredGrant| ended.expires_at_ms <= self.core.gate_now_ms();
            if voided > wanted && last.as_ref().is_some_and(is_over) {
                return lowered(-wanted);
            }
            let place = i16::try_from(noted.len()).unwrap_or(i16::MAX);
            let next = if is_voided && stored.booked_amount.is_some() {
                None
            } else if is_voided {
                let is_new = |grant: &&(StoredGrant, Decimal)| noted.iter().all(|note| note.id != grant.0.id);
                self.voidable(&stored.terms).await?.iter().find(is_new).map(|(grant, _)| grant.id)
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

    /// Ends a grant; none while what is unburnt of it is not booked. One that is what a plan includes more, which
    /// earlier versions noted too, stays as it is.
    async fn void(&self, id: GrantId, actor: &str) -> Answer<Option<StoredGrant>> {
        match self.grants.void(id, actor).await {
            Ok(_) | Err(OperationError::GrantEnded(_)) => {}
            Err(OperationError::InUse(_)) => return Ok(self.core.ledger.grant(id).await?),
            Err(error) => return Err(error),
        }
        let ended = self.core.ledger.grant(id).await?;
        Ok(ended.filter(|grant| grant.settled_at_ms.is_some()))
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

/// The meter of an adjustment of units: it names one.
fn meter_of(terms: &AdjustmentTerms) -> Answer<&MeterId> {
    terms.meter.as_ref().ok_or_else(|| OperationError::field("/meter", "must say of which meter"))
}

fn reason(stored: &StoredAdjustment) -> String {
    format!("adjustment {}: {}", stored.id, stored.terms.reason)
}

fn repeated(stored: StoredAdjustment, terms: &AdjustmentTerms) -> Answer<AdjustmentDetails> {
    if stored.terms == *terms {
        Ok(AdjustmentDetails { stored, replayed: true })
    } else {
        Err(OperationError::AdjustmentKeyReused(stored.id))
    }
}

fn no_such_adjustment() -> OperationError {
    OperationError::NotFound("there is no such adjustment".into())
}
