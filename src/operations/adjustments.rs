//! Adjustments: corrections that finance posts, approved by another person where they are large.

mod allowance;
mod unbilled;
mod usage;

use std::sync::Arc;

use rust_decimal::Decimal;

use crate::domain::adjustment::{AdjustmentEffect, AdjustmentId, AdjustmentState, AdjustmentTerms};
use crate::domain::amount::Amount;
use crate::domain::grant::{GrantKind, GrantRollover, GrantTerms, Priority, Recurrence};
use crate::domain::ids::{IdempotencyKey, MeterId, Partition, ReservationId};
use crate::domain::period::WindowKind;
use crate::domain::signed_amount::SignedAmount;
use crate::ledger::{
    AdjustmentGrant, BookedAs, Decided, NewAdjustment, ParkedState, Posted, StoredAdjustment, Verdict,
};
use crate::operations::answers::AdjustmentDetails;
use crate::operations::calls::Calls;
use crate::operations::core::Core;
use crate::operations::damage::Work;
use crate::operations::error::{Answer, FieldError, OperationError};
use crate::operations::grants::GrantVerbs;
use crate::operations::left_partitions::LeftPartitions;
use crate::operations::memory::Memory;
use crate::operations::policy_store::TenantEntry;

use self::unbilled::unbilled;
use self::usage::unbookable;

/// How many approved adjustments are read at once.
const PAGE: usize = 500;

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
        let last_id = self.core.gate.last_event(partition).await?;
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
