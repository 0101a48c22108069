//! Check: work that the gate alone counts, at once and without a reservation. On booked meters it is a usage.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::call_metrics::outcome_of;
use super::check_answer::{all_or_none, allowed, answers, refused};
use super::check_global::GlobalChecks;
use super::{Calls, KEPT_CHANGING};
use crate::domain::algorithms::Parameters;
use crate::domain::amount::Units;
use crate::domain::counter::Counter;
use crate::domain::ids::{Epoch, OperationId, Partition};
use crate::domain::policy::Resolved;
use crate::domain::policy::intervals::OperationInterval;
use crate::domain::policy::resolve::put_under;
use crate::domain::reservation::SubjectHash;
use crate::gate::check::CHECKS_MAX;
use crate::gate::{CheckAsk, CheckOutcome, CheckedCounters, GateError};
use crate::operations::answers::{Checked, Refusal};
use crate::operations::error::{Answer, OperationError};
use crate::operations::outage::{LetThrough, Outage, Refused, Stranded};
use crate::operations::policy_store::TenantEntry;
use crate::operations::preparation::{Line, check_work, lines_of, refuse_archived, refuse_banned};
use crate::operations::requests::{CheckRequest, Work};
use crate::telemetry::labels::{Call, Script};

/// Why checks came to nothing, and which of them, where it is one's own.
pub type FailedCheck = (Option<usize>, OperationError);

/// A check that is understood.
pub(super) struct Costed {
    work: Work,
    pub(super) lines: Vec<Line>,
    operation: Option<OperationId>,
    /// The operation's least time between calls.
    interval: Option<OperationInterval>,
    /// Whether one of its meters is booked; otherwise the gate alone counts them.
    is_booked: bool,
}

/// A check under light counters.
pub(super) struct LightCheck<'a> {
    pub(super) request: &'a CheckRequest,
    pub(super) costed: &'a Costed,
    pub(super) units: Vec<Units>,
    pub(super) entry: Arc<TenantEntry>,
    hashes: Vec<SubjectHash>,
}

/// A light check and what it falls under now.
pub(super) struct Resolution<'a> {
    pub(super) check: &'a LightCheck<'a>,
    /// What it falls under; the refusal where nothing is and that is denied.
    pub(super) resolved: Result<Resolved, Box<Refusal>>,
    /// The counters of limits over all tenants, which are asked first.
    pub(super) globals: Vec<Counter>,
}

impl Calls {
    /// Decides checks, one after the other, each all of it or nothing; all or none of them where they are `together`.
    ///
    /// Errors: a check is wrong, and nothing is counted; or one of them cannot be decided, and what others have counted
    /// stays counted.
    pub async fn check(
        &self,
        requests: Vec<CheckRequest>,
        together: bool,
    ) -> Result<Vec<Checked>, FailedCheck> {
        let mut costed = Vec::with_capacity(requests.len());
        for (index, request) in requests.iter().enumerate() {
            costed.push(self.cost(request).map_err(|error| self.failed(Some(index), error))?);
        }
        if together && let Some(error) = cannot_go_together(&requests, &costed) {
            return Err(self.failed(None, error));
        }
        let light = self.light_checks(&requests, &costed).await?;
        let mut checked: Vec<Option<Checked>> = Vec::new();
        checked.resize_with(requests.len(), || None);
        for (index, (request, costed)) in requests.iter().zip(&costed).enumerate() {
            if costed.is_booked {
                let answer = Box::pin(self.check_booked(request, &costed.work, &costed.lines)).await;
                checked[index] = Some(answer.map_err(|error| (Some(index), error))?);
            }
        }
        let mut by_partition: BTreeMap<Partition, Vec<&(usize, LightCheck<'_>)>> = BTreeMap::new();
        for light in &light {
            by_partition.entry(light.1.entry.partition).or_default().push(light);
        }
        for (partition, all) in by_partition {
            for chunk in all.chunks(CHECKS_MAX) {
                let asked: Vec<_> = chunk.iter().map(|(_, check)| check).collect();
                let answers = self.check_light(partition, &asked, together).await;
                let answers = answers.map_err(|error| self.failed(None, error))?;
                for ((index, check), mut answer) in chunk.iter().zip(answers) {
                    Self::reveal_check(check, &mut answer);
                    self.check_decided(check.request, check.costed.operation.as_ref(), &answer);
                    self.keep_light(check, &answer);
                    checked[*index] = Some(answer);
                }
            }
        }
        Ok(checked.into_iter().flatten().collect())
    }

    fn keep_light(&self, check: &LightCheck<'_>, checked: &Checked) {
        if checked.allowed && !self.decisions.samples(&check.request.tenant) {
            return;
        }
        let lines: Vec<_> = check.costed.lines.iter().map(Line::asked).collect();
        let by = (&lines[..], check.entry.policy.version);
        self.keep_check(check.request, by, check.costed.operation.as_ref(), checked);
    }

    fn failed(&self, index: Option<usize>, error: OperationError) -> FailedCheck {
        self.core.metrics.decision(Call::Check, outcome_of(&error));
        (index, error)
    }

    /// Costs a check, and says where it goes.
    fn cost(&self, request: &CheckRequest) -> Answer<Costed> {
        let policy = self.core.policy.current();
        let work = check_work(&policy, request)?;
        let (lines, operation) = lines_of(&policy, &work, None)?;
        let is_booked = lines.iter().any(|line| line.meter.booked);
        if is_booked && request.key.is_none() && !request.peeks {
            return Err(OperationError::KeyRequired);
        }
        let interval = operation.as_ref().and_then(|operation| operation.interval());
        let operation = operation.map(|operation| operation.id.clone());
        Ok(Costed { work, lines, operation, interval, is_booked })
    }

    /// The checks under light counters, by number, each with its tenant. Tenants are made only where all others are
    /// known and their checks are right.
    async fn light_checks<'a>(
        &self,
        requests: &'a [CheckRequest],
        costed: &'a [Costed],
    ) -> Result<Vec<(usize, LightCheck<'a>)>, FailedCheck> {
        // What is wrong with one that is alone is found when it is decided.
        let at_ms = (requests.len() > 1).then(|| self.core.gate_now_ms());
        let mut light = Vec::with_capacity(requests.len());
        let mut of_new_tenants = Vec::new();
        for (index, (request, costed)) in requests.iter().zip(costed).enumerate() {
            if costed.is_booked {
                continue;
            }
            let failed = |error| self.failed(Some(index), error);
            match self.core.policy.find_tenant(&request.tenant).await.map_err(failed)? {
                None => of_new_tenants.push((index, request, costed)),
                Some(entry) => {
                    let check = self.light_check(entry, request, costed, at_ms).map_err(failed)?;
                    light.push((index, check));
                }
            }
        }
        for (index, request, costed) in of_new_tenants {
            // A look writes nothing, so it does not make the tenant either.
            let entry = match request.peeks {
                true => self.core.policy.tenant(&request.tenant).await,
                false => self.policy.tenant_or_new(&request.tenant).await,
            };
            let check = entry.and_then(|entry| self.light_check(entry, request, costed, at_ms));
            light.push((index, check.map_err(|error| self.failed(Some(index), error))?));
        }
        light.sort_by_key(|(index, _)| *index);
        Ok(light)
    }

    /// A check of this tenant; with a time, also whether it can be decided then.
    fn light_check<'a>(
        &self,
        entry: Arc<TenantEntry>,
        request: &'a CheckRequest,
        costed: &'a Costed,
        at_ms: Option<i64>,
    ) -> Answer<LightCheck<'a>> {
        refuse_archived(&entry)?;
        let hash = |subject| self.core.gate.subject_hash(&request.tenant, subject);
        let hashes = request.subjects.iter().map(hash).collect();
        let units = costed.lines.iter().map(|line| line.units).collect();
        let check = LightCheck { request, costed, units, entry, hashes };
        if let Some(at_ms) = at_ms {
            self.resolve_check(&check, at_ms)?;
        }
        Ok(check)
    }

    /// Decides checks of one partition in one round trip.
    async fn check_light(
        &self,
        partition: Partition,
        asked: &[&LightCheck<'_>],
        together: bool,
    ) -> Answer<Vec<Checked>> {
        let counted_by_all = |check: &&LightCheck<'_>| {
            check.entry.may_count_globally(check.costed.lines.iter().map(|line| &line.meter.id))
        };
        let mut first = GlobalChecks::default();
        if asked.iter().any(counted_by_all) {
            match Box::pin(self.check_globally(asked, together)).await? {
                Ok(said) => first = said,
                Err((resolutions, away)) => return self.check_without_gate(resolutions, together, away),
            }
        }
        let answers = self.check_in_partition(partition, asked, together, &first).await;
        Box::pin(self.give_back_refused(asked, &first, &answers)).await;
        answers
    }

    /// Decides checks in their partition, after the limits over all tenants.
    async fn check_in_partition(
        &self,
        partition: Partition,
        asked: &[&LightCheck<'_>],
        together: bool,
        first: &GlobalChecks,
    ) -> Answer<Vec<Checked>> {
        let mut at_ms = self.core.gate_now_ms();
        let (mut recovery, mut has_recalled) = (self.memory.recovery(KEPT_CHANGING), false);
        loop {
            self.admission.may_admit(true)?;
            let resolutions = self.resolve_checks(asked, at_ms)?;
            let known = self.prefilter_checks(&resolutions, together);
            let only_peek = |number: usize| first.refuse(number, together) || denies(&resolutions, together);
            let is_known = |number: usize| known.get(number).is_some_and(Option::is_some);
            let mut asks: Vec<_> = Vec::with_capacity(resolutions.len());
            for (number, each) in resolutions.iter().enumerate() {
                let ask = each.ask(at_ms, only_peek(number));
                asks.push(ask.filter(|_| !is_known(number)));
            }
            let is_asked: Vec<_> = asks.iter().map(Option::is_some).collect();
            let asks: Vec<_> = asks.into_iter().flatten().collect();
            self.want_shares_of_checks(&resolutions);
            let decided = if asks.is_empty() {
                Ok(CheckOutcome::Decided {
                    checks: Vec::new(),
                    epoch: Epoch::default(),
                    now_ms: self.core.gate_now_ms(),
                })
            } else {
                let call = self.core.gate.check(partition, &asks, together, self.core.script_now());
                self.core.timed(Script::Check, call).await
            };
            drop(asks);
            match decided {
                Ok(CheckOutcome::Decided { checks, now_ms, .. }) => {
                    let said = (&is_asked[..], checks);
                    let checks = self.with_known_checks(known, &resolutions, said, together);
                    // Only what has counted nothing may be decided again.
                    let may_repeat = !has_recalled && (together || asked.len() == 1);
                    if may_repeat
                        && Box::pin(self.recall_shares_of_checks(&resolutions, &checks, only_peek)).await
                    {
                        has_recalled = true;
                        continue;
                    }
                    let joined = first.joined(resolutions, checks);
                    return Ok(answers(joined, now_ms.max(at_ms), together));
                }
                Ok(CheckOutcome::StaleWindow { now_ms }) => {
                    at_ms = now_ms;
                    recovery.again()?;
                }
                Err(error) => {
                    if let Some(away) = recovery.after_failure(error).await? {
                        return self.check_without_gate(resolutions, together, away);
                    }
                }
            }
        }
    }

    /// What each of these checks falls under at `at_ms`.
    pub(super) fn resolve_checks<'a>(
        &self,
        asked: &[&'a LightCheck<'a>],
        at_ms: i64,
    ) -> Answer<Vec<Resolution<'a>>> {
        asked.iter().map(|check| self.resolve_check(check, at_ms)).collect()
    }

    fn resolve_check<'a>(&self, check: &'a LightCheck<'a>, at_ms: i64) -> Answer<Resolution<'a>> {
        let (request, lines) = (check.request, &check.costed.lines);
        let meters: Vec<_> = lines.iter().map(|line| &line.meter.id).collect();
        let windows = check.entry.windows(at_ms);
        let operation = check.costed.operation.as_ref();
        let mut resolved = check
            .entry
            .policy
            .resolve(meters.iter().copied(), &request.subjects, operation, at_ms, &windows)
            .and_then(|resolved| match &check.costed.interval {
                Some(interval) => resolved.with_interval(interval, meters, request.subjects.len()),
                None => Ok(resolved),
            })
            .and_then(|resolved| resolved.with_anomalies(operation))
            .map_err(|error| OperationError::field("/subjects", error.to_string()))?;
        if let Err(refusal) = refuse_banned(&check.entry, &request.subjects, lines, at_ms) {
            return Ok(Resolution { check, resolved: Err(refusal), globals: Vec::new() });
        }
        let meters = lines.iter().map(|line| &line.meter.id);
        let mut globals = check
            .entry
            .global_counters(meters, operation, at_ms)
            .map_err(|error| OperationError::field("/operation", error.to_string()))?;
        put_under(&mut globals, self.core.load.level());
        resolved.counters.retain(concerns_checks);
        let resolved =
            match self.preparation.refuse_without_limit(lines, &resolved, check.entry.policy.version) {
                Ok(()) => Ok(resolved.under(self.core.load.level())),
                Err(OperationError::Refused(refusal)) => Err(refusal),
                Err(error) => return Err(error),
            };
        Ok(Resolution { check, resolved, globals })
    }

    /// Notes of which counters of these checks this instance wants shares.
    fn want_shares_of_checks(&self, resolutions: &[Resolution<'_>]) {
        for each in resolutions.iter().filter(|each| !each.check.request.peeks) {
            if let Ok(resolved) = &each.resolved {
                self.outage.want_shares(each.work(), &resolved.counters, true);
            }
        }
    }

    /// Gives back shares of counters that refuse these checks, unless they only look. Returns whether there were any.
    async fn recall_shares_of_checks(
        &self,
        resolutions: &[Resolution<'_>],
        checks: &[Option<CheckedCounters>],
        only_peek: impl Fn(usize) -> bool,
    ) -> bool {
        let mut were_any = false;
        for (number, (each, decided)) in resolutions.iter().zip(checks).enumerate() {
            let (Ok(resolved), Some(CheckedCounters { refusing, readings, .. })) = (&each.resolved, decided)
            else {
                continue;
            };
            if !each.check.request.peeks && !only_peek(number) {
                let refused = Refused { counters: &resolved.counters, readings, refusing, any_part: false };
                were_any |= self.outage.recall_shares(each.work(), refused).await;
            }
        }
        were_any
    }

    /// While the gate is away: allowed where no limit says otherwise, and not counted later.
    fn check_without_gate(
        &self,
        resolutions: Vec<Resolution<'_>>,
        together: bool,
        away: GateError,
    ) -> Answer<Vec<Checked>> {
        let now_ms = self.core.gate_now_ms();
        let is_off = denies(&resolutions, together);
        let mut let_through = Vec::with_capacity(resolutions.len());
        for each in resolutions.iter().filter(|each| each.resolved.is_ok()) {
            let taken = each.let_through(&self.outage, now_ms);
            let is_denied = taken.is_none();
            let_through.extend(taken);
            if is_denied || is_off {
                let_through.drain(..).for_each(|taken| self.outage.put_back(taken));
            }
            if is_denied {
                return Err(away.into());
            }
        }
        let answer = |each: Resolution<'_>| match each.resolved {
            Ok(_) => Checked { degraded: true, ..allowed(Vec::new(), &[]) },
            Err(refusal) => refused(*refusal, &[]),
        };
        let mut answers: Vec<_> = resolutions.into_iter().map(answer).collect();
        all_or_none(&mut answers, together);
        Ok(answers)
    }
}

impl Resolution<'_> {
    pub(super) fn work(&self) -> Stranded<'_> {
        Stranded {
            tenant: &self.check.entry.definition.id,
            subjects: &self.check.hashes,
            amounts: &self.check.units,
        }
    }

    /// What is counted of it while the gate is away; none where a limit denies it, or it only looks.
    fn let_through(&self, outage: &Outage, now_ms: i64) -> Option<LetThrough> {
        let resolved = self.resolved.as_ref().ok().filter(|_| !self.check.request.peeks)?;
        outage.let_through(self.work(), resolved.counters.iter().chain(&self.globals), now_ms).ok()
    }

    /// What the gate is asked; nothing where no limit counts it.
    fn ask(&self, at_ms: i64, only_peek: bool) -> Option<CheckAsk<'_>> {
        let resolved = self.resolved.as_ref().ok().filter(|resolved| !resolved.counters.is_empty())?;
        let valid = self.check.entry.windows(at_ms).valid();
        Some(CheckAsk {
            tenant: Some(&self.check.entry.definition.id),
            subjects: &self.check.hashes,
            amounts: &self.check.units,
            counters: &resolved.counters,
            valid: (valid.start_ms, valid.end_ms),
            needed_until_ms: resolved
                .counters
                .iter()
                .map(|each| each.ends_at_ms(at_ms))
                .max()
                .unwrap_or_default(),
            peeks: self.check.request.peeks || only_peek,
        })
    }
}

/// Whether one of checks that go together is denied, and so all of them.
pub(super) fn denies(resolutions: &[Resolution<'_>], together: bool) -> bool {
    together && resolutions.iter().any(|each| each.resolved.is_err())
}

/// Whether the counter may refuse or count a check. A limit of what runs at once does neither, because a check holds
/// nothing; but those whom it has banned may do nothing.
fn concerns_checks(counter: &Counter) -> bool {
    !matches!(counter.parameters, Parameters::Concurrency(_)) || counter.punishment().is_some()
}

/// Why these checks cannot be decided as one.
fn cannot_go_together(requests: &[CheckRequest], costed: &[Costed]) -> Option<OperationError> {
    let wrong = |message: &str| Some(OperationError::field("/atomic", message));
    if requests.iter().any(|request| Some(&request.tenant) != requests.first().map(|first| &first.tenant)) {
        return wrong("holds within one tenant only");
    }
    if requests.len() > CHECKS_MAX {
        return wrong("holds for at most 16 checks");
    }
    if costed.iter().any(|costed| costed.is_booked) {
        return wrong("holds for meters that are not booked; record the others as one usage");
    }
    let looks = requests.iter().filter(|request| request.peeks).count();
    if (1..requests.len()).contains(&looks) {
        return wrong("holds for checks that all count, or all `peek`");
    }
    None
}
