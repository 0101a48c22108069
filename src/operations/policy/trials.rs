//! What a policy file would have refused: the recorded decisions of sampled tenants are decided again under it.

use std::collections::{BTreeMap, BTreeSet};

use uuid::Uuid;

use super::PolicyVerbs;
use super::policy_draft::Proposal;
use crate::domain::decision::Decision;
use crate::domain::ids::TenantId;
use crate::domain::policy::edit::Edit;
use crate::domain::trial::{Outcome, Trial};
use crate::ledger::decisions::DecisionCursor;
use crate::operations::answers::{TrialCounts, TrialResult, TrialRow};
use crate::operations::error::{Answer, OperationError};
use crate::operations::requests::TrialRequest;

/// How many decisions are read at once.
const PAGE: i64 = 500;
/// So many decisions or rows make an answer; the tenant with which they are reached is tried to its end.
const DECISIONS_ENOUGH: u64 = 100_000;
const ROWS_ENOUGH: usize = 5_000;
const HOUR_MS: i64 = 3_600_000;

impl PolicyVerbs {
    /// Tries a policy file on what is recorded, tenant after tenant in the order of their ids, until the answer is long
    /// enough. Each tenant's record is read from its beginning, so that what was counted before `since` counts.
    ///
    /// Errors: everything that is wrong with the file, with pointers into it.
    pub async fn try_policy(&self, request: TrialRequest) -> Answer<TrialResult> {
        let until_ms = request.until_ms;
        self.decisions.write().await;
        let edit = Edit::apply(request.policy, request.prune).map_err(OperationError::Invalid)?;
        let draft = self.draft(&edit, "").await?;
        self.refuse(&draft).await?;
        let proposal = draft.into_proposal();
        let mut tried = Tried::new(request.since_ms, until_ms);
        let mut after = request.after;
        let is_named = |tenant: &TenantId| request.tenants.is_empty() || request.tenants.contains(tenant);
        let ledger = &self.core.ledger;
        while let Some(tenant) =
            ledger.next_tenant_with_decisions(after.as_ref(), request.since_ms, until_ms).await?
        {
            if is_named(&tenant) {
                self.try_tenant(&proposal, &tenant, &mut tried).await?;
            }
            after = Some(tenant);
            if tried.is_enough() {
                return Ok(tried.result(self.unsampled(&request.tenants), after));
            }
        }
        Ok(tried.result(self.unsampled(&request.tenants), None))
    }

    fn unsampled(&self, tenants: &BTreeSet<TenantId>) -> Vec<TenantId> {
        tenants.iter().filter(|tenant| !self.decisions.samples(tenant)).cloned().collect()
    }

    async fn try_tenant(&self, proposal: &Proposal, tenant: &TenantId, tried: &mut Tried) -> Answer<()> {
        // The books may have lost it since: a tenant without use can be deleted.
        let Some(stored) = self.core.ledger.read_tenant_definition(tenant).await? else { return Ok(()) };
        let name = |subject: &_| self.decisions.name(tenant, subject);
        let Some(terms) = proposal.terms(stored, name, self.denies_without_limit)? else { return Ok(()) };
        let mut trial = Trial::new(terms);
        let mut after = None;
        loop {
            let page = self.core.ledger.decisions_of(tenant, after, tried.until_ms, PAGE).await?;
            let Some(last) = page.last() else { break };
            after = Some(DecisionCursor { at_ms: last.at_ms, number: last.number, id: last.id });
            for decision in &page {
                tried.note(decision, trial.decide(decision));
            }
            tokio::task::yield_now().await;
        }
        tried.counts.tenants += 1;
        Ok(())
    }
}

/// What was found so far.
struct Tried {
    since_ms: i64,
    until_ms: i64,
    counts: TrialCounts,
    /// How many decisions were read, also those from before `since_ms`.
    read: u64,
    rows: BTreeMap<(TenantId, String, i64), Refusals>,
}

/// What one limit refused of one tenant in one hour.
struct Refusals {
    refused: u64,
    admitted_then: u64,
    first: Uuid,
}

impl Tried {
    fn new(since_ms: i64, until_ms: i64) -> Self {
        Self { since_ms, until_ms, counts: TrialCounts::default(), read: 0, rows: BTreeMap::new() }
    }

    fn is_enough(&self) -> bool {
        self.read >= DECISIONS_ENOUGH || self.rows.len() >= ROWS_ENOUGH
    }

    fn note(&mut self, decision: &Decision, outcome: Outcome) {
        self.read += 1;
        if decision.at_ms < self.since_ms || outcome == Outcome::Unasked {
            return;
        }
        self.counts.decisions += 1;
        self.counts.refused_then += u64::from(!decision.is_admitted);
        match outcome {
            Outcome::Refused(limits) => {
                self.counts.refused += 1;
                self.counts.newly_refused += u64::from(decision.is_admitted);
                limits.into_iter().for_each(|limit| self.refuse(decision, limit));
            }
            Outcome::Undecidable => self.counts.undecidable += 1,
            Outcome::Admitted | Outcome::Unasked => {
                self.counts.newly_admitted += u64::from(!decision.is_admitted);
            }
        }
    }

    fn refuse(&mut self, decision: &Decision, limit: String) {
        let hour_ms = decision.at_ms - decision.at_ms.rem_euclid(HOUR_MS);
        let nothing = || Refusals { refused: 0, admitted_then: 0, first: decision.id };
        let row = self.rows.entry((decision.tenant.clone(), limit, hour_ms)).or_insert_with(nothing);
        row.refused += 1;
        row.admitted_then += u64::from(decision.is_admitted);
    }

    fn result(self, unsampled: Vec<TenantId>, next: Option<TenantId>) -> TrialResult {
        let row = |((tenant, limit, hour_ms), found): ((TenantId, String, i64), Refusals)| TrialRow {
            limit,
            tenant,
            hour_ms,
            refused: found.refused,
            admitted_then: found.admitted_then,
            first: found.first,
        };
        TrialResult {
            since_ms: self.since_ms,
            until_ms: self.until_ms,
            counts: self.counts,
            rows: self.rows.into_iter().map(row).collect(),
            unsampled,
            next,
        }
    }
}
