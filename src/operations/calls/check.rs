//! Check: work that the gate alone counts, at once and without a reservation. On booked meters it is a usage.

use std::collections::BTreeMap;
use std::sync::Arc;

use uuid::Uuid;

use super::call_metrics::outcome_of;
use super::refusal::{Asked, refusal};
use super::{Calls, KEPT_CHANGING};
use crate::domain::algorithms::Parameters;
use crate::domain::amount::Units;
use crate::domain::counter::{Counter, need};
use crate::domain::ids::{OperationId, Partition};
use crate::domain::policy::Resolved;
use crate::domain::reservation::SubjectHash;
use crate::gate::check::CHECKS_MAX;
use crate::gate::{CheckAsk, CheckOutcome, CheckedCounters, GateError};
use crate::operations::answers::{Checked, Refusal, Reservation, Reserved};
use crate::operations::error::{Answer, OperationError};
use crate::operations::limit_status::{LimitStatus, limit_statuses};
use crate::operations::policy_store::TenantEntry;
use crate::operations::preparation::{Line, check_work, lines_of, refuse_archived};
use crate::operations::requests::{Ack, CheckRequest, Mode, ReserveRequest, Work};
use crate::telemetry::labels::{Call, Outcome, Script};

/// Why checks came to nothing, and which of them, where it is one's own.
pub type FailedCheck = (Option<usize>, OperationError);

/// A check that is understood.
enum Course {
    /// Of booked meters: a usage.
    Booked { work: Work, lines: Vec<Line> },
    /// Of meters that the gate alone counts.
    Light(LightCheck),
}

/// A check under light counters.
struct LightCheck {
    entry: Arc<TenantEntry>,
    lines: Vec<Line>,
    units: Vec<Units>,
    operation: Option<OperationId>,
    hashes: Vec<SubjectHash>,
}

/// A light check and what it falls under now.
struct Resolution<'a> {
    request: &'a CheckRequest,
    check: &'a LightCheck,
    /// What it falls under; the refusal where nothing is and that is denied.
    resolved: Result<Resolved, Box<Refusal>>,
}

impl Calls {
    /// Decides checks, one after the other, each all of it or nothing; all or none of them where they are `together`.
    ///
    /// Errors: a check is wrong, or one of them cannot be decided. What others have counted stays counted.
    pub async fn check(
        &self,
        requests: Vec<CheckRequest>,
        together: bool,
    ) -> Result<Vec<Checked>, FailedCheck> {
        let mut courses = Vec::with_capacity(requests.len());
        for (index, request) in requests.iter().enumerate() {
            let course = self.course(request).await.map_err(|error| self.failed(Some(index), error))?;
            courses.push(course);
        }
        if together && let Some(error) = cannot_go_together(&requests, &courses) {
            return Err(self.failed(None, error));
        }
        let mut checked: Vec<Option<Checked>> = Vec::new();
        checked.resize_with(requests.len(), || None);
        let mut light: BTreeMap<Partition, Vec<usize>> = BTreeMap::new();
        for (index, (request, course)) in requests.iter().zip(&courses).enumerate() {
            match course {
                Course::Light(check) => light.entry(check.entry.partition).or_default().push(index),
                Course::Booked { work, lines } => {
                    let answer = Box::pin(self.check_booked(request, work, lines)).await;
                    checked[index] = Some(answer.map_err(|error| (Some(index), error))?);
                }
            }
        }
        let alone = |index: usize| match &courses[index] {
            Course::Light(check) => Some((&requests[index], check)),
            Course::Booked { .. } => None,
        };
        let of_partition = |(partition, indexes): (&Partition, &'_ Vec<usize>)| {
            indexes.chunks(CHECKS_MAX).map(|chunk| (*partition, chunk.to_vec())).collect::<Vec<_>>()
        };
        for (partition, indexes) in light.iter().flat_map(of_partition) {
            let asked: Vec<_> = indexes.iter().filter_map(|index| alone(*index)).collect();
            let answers = self.check_light(partition, &asked, together).await;
            let answers = answers.map_err(|error| self.failed(None, error))?;
            for (index, answer) in indexes.iter().zip(answers) {
                let outcome = if answer.allowed { Outcome::Admitted } else { Outcome::Refused };
                self.core.metrics.decision(Call::Check, outcome);
                checked[*index] = Some(answer);
            }
        }
        Ok(checked.into_iter().flatten().collect())
    }

    fn failed(&self, index: Option<usize>, error: OperationError) -> FailedCheck {
        self.core.metrics.decision(Call::Check, outcome_of(&error));
        (index, error)
    }

    /// Costs a check, and says where it goes.
    async fn course(&self, request: &CheckRequest) -> Answer<Course> {
        let policy = self.core.policy.current();
        let work = check_work(&policy, request)?;
        let (lines, operation) = lines_of(&policy, &work)?;
        let booked = lines.iter().filter(|line| line.meter.booked).count();
        if booked == lines.len() {
            let needs_key = request.key.is_none() && !request.peeks;
            return if needs_key {
                Err(OperationError::KeyRequired)
            } else {
                Ok(Course::Booked { work, lines })
            };
        }
        if booked > 0 {
            let message =
                "costs meters that are booked and others that are not: reserve the ones and check the others";
            return Err(OperationError::field("/operation", message));
        }
        // A look writes nothing, so it does not make the tenant either.
        let entry = match request.peeks {
            true => self.core.policy.tenant(&request.tenant).await?,
            false => self.policy.tenant_or_new(&request.tenant).await?,
        };
        refuse_archived(&entry)?;
        let hash = |subject| self.core.gate.subject_hash(&request.tenant, subject);
        let hashes = request.subjects.iter().map(hash).collect();
        let units = lines.iter().map(|line| line.units).collect();
        Ok(Course::Light(LightCheck { entry, lines, units, operation, hashes }))
    }

    /// A check of booked meters: a usage, or as one that is only asked about.
    async fn check_booked(&self, check: &CheckRequest, work: &Work, lines: &[Line]) -> Answer<Checked> {
        let request = ReserveRequest {
            tenant: check.tenant.clone(),
            subjects: check.subjects.clone(),
            work: work.clone(),
            ttl: None,
            mode: Mode::AllOrNothing,
            dry_run: check.peeks,
            payload_fingerprint: None,
            metadata: None,
            key: check.key.clone(),
            happened_at_ms: None,
        };
        let units: Vec<_> = lines.iter().map(|line| line.units).collect();
        let (limits, degraded) = if check.peeks {
            let Reserved { allowed, limits, refused_by, degraded, decision_id, .. } =
                self.reserve(request).await?;
            if allowed == Some(false) {
                let waits = refused_by.iter().map(|one| one.retry_after_ms);
                let retry_after_ms =
                    waits.collect::<Option<Vec<_>>>().and_then(|waits| waits.into_iter().max());
                let remaining_calls = remaining_calls(&limits, &units);
                let allowed = false;
                return Ok(Checked {
                    allowed,
                    remaining_calls,
                    retry_after_ms,
                    decision_id,
                    degraded,
                    limits,
                    refused_by,
                });
            }
            (limits, degraded)
        } else {
            match self.record_usage(request, Ack::Gate).await {
                Ok(Reservation { limits, degraded, record, .. }) => {
                    (limits, degraded || record.head.degraded)
                }
                Err(OperationError::Refused(refusal)) => return Ok(refused(*refusal, &units)),
                Err(error) => return Err(error),
            }
        };
        Ok(Checked { degraded, ..allowed(limits, &units) })
    }

    /// Decides checks of one partition in one round trip.
    async fn check_light(
        &self,
        partition: Partition,
        asked: &[(&CheckRequest, &LightCheck)],
        together: bool,
    ) -> Answer<Vec<Checked>> {
        let mut at_ms = self.core.clock.now_ms();
        let mut recovery = self.memory.recovery(KEPT_CHANGING);
        loop {
            self.admission.may_admit(true)?;
            let resolutions = self.resolve_checks(asked, at_ms)?;
            let is_denied = together && resolutions.iter().any(|each| each.resolved.is_err());
            let asks: Vec<_> = resolutions.iter().filter_map(|each| each.ask(at_ms, is_denied)).collect();
            let decided = if asks.is_empty() {
                Ok(CheckOutcome::Decided { checks: Vec::new(), now_ms: at_ms })
            } else {
                let call = self.core.gate.check(partition, &asks, together, self.core.script_now());
                self.core.timed(Script::Check, call).await
            };
            drop(asks);
            match decided {
                Ok(CheckOutcome::Decided { checks, now_ms }) => {
                    let peeks: Vec<_> = resolutions.iter().map(|each| each.request.peeks).collect();
                    let answers = answers(resolutions, checks, now_ms.max(at_ms), together);
                    let counted =
                        answers.iter().zip(peeks).filter(|(answer, peeks)| answer.allowed && !peeks);
                    counted.for_each(|(answer, _)| self.count_shadow_refusals(&answer.limits));
                    return Ok(answers);
                }
                Ok(CheckOutcome::StaleWindow { now_ms }) => {
                    at_ms = now_ms;
                    recovery.again()?;
                }
                Err(error) => {
                    if let Some(away) = recovery.after_failure(error).await? {
                        return self.check_without_gate(resolutions, away);
                    }
                }
            }
        }
    }

    fn resolve_checks<'a>(
        &self,
        asked: &[(&'a CheckRequest, &'a LightCheck)],
        at_ms: i64,
    ) -> Answer<Vec<Resolution<'a>>> {
        let resolve = |&(request, check): &(&'a CheckRequest, &'a LightCheck)| {
            let meters: Vec<_> = check.lines.iter().map(|line| &line.meter.id).collect();
            let windows = check.entry.windows(at_ms);
            let policy = &check.entry.policy;
            let resolved = policy
                .resolve(meters, &request.subjects, check.operation.as_ref(), at_ms, &windows)
                .map_err(|error| OperationError::field("/subjects", error.to_string()))?;
            if resolved.counters.iter().any(counts_holds_only) {
                let message =
                    "falls under a limit of what runs at once: a check holds nothing, reserve instead";
                return Err(OperationError::field("/operation", message));
            }
            let resolved = match self.preparation.refuse_without_limit(&check.lines, &resolved) {
                Ok(()) => Ok(resolved),
                Err(OperationError::Refused(refusal)) => Err(refusal),
                Err(error) => return Err(error),
            };
            Ok(Resolution { request, check, resolved })
        };
        asked.iter().map(resolve).collect()
    }

    /// While the gate is away: allowed where every limit allows that, without being counted.
    fn check_without_gate(&self, resolutions: Vec<Resolution<'_>>, away: GateError) -> Answer<Vec<Checked>> {
        let may_go = |each: &Resolution<'_>| {
            let resolved = each.resolved.as_ref();
            let allows = |resolved: &Resolved| resolved.counters.iter().all(Counter::allows_without_gate);
            resolved.is_err() || (!each.request.peeks && resolved.is_ok_and(allows))
        };
        if !self.core.gate.trusts_time() || !resolutions.iter().all(may_go) {
            return Err(away.into());
        }
        let answer = |each: Resolution<'_>| match each.resolved {
            Ok(_) => Checked { degraded: true, ..allowed(Vec::new(), &[]) },
            Err(refusal) => refused(*refusal, &[]),
        };
        Ok(resolutions.into_iter().map(answer).collect())
    }
}

impl Resolution<'_> {
    /// What the gate is asked; nothing where no limit counts it.
    fn ask(&self, at_ms: i64, only_peek: bool) -> Option<CheckAsk<'_>> {
        let resolved = self.resolved.as_ref().ok().filter(|resolved| !resolved.counters.is_empty())?;
        let valid = self.check.entry.windows(at_ms).valid();
        Some(CheckAsk {
            tenant: &self.check.entry.definition.id,
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
            peeks: self.request.peeks || only_peek,
        })
    }
}

/// Whether work that ends at once is never counted.
fn counts_holds_only(counter: &Counter) -> bool {
    matches!(counter.parameters, Parameters::Concurrency(_))
}

/// Why these checks cannot be decided as one.
fn cannot_go_together(requests: &[CheckRequest], courses: &[Course]) -> Option<OperationError> {
    let wrong = |message: &str| Some(OperationError::field("/atomic", message));
    if requests.iter().any(|request| Some(&request.tenant) != requests.first().map(|first| &first.tenant)) {
        return wrong("holds within one tenant only");
    }
    if requests.len() > CHECKS_MAX {
        return wrong("holds for at most 16 checks");
    }
    if courses.iter().any(|course| matches!(course, Course::Booked { .. })) {
        return wrong("holds for meters that are not booked; record the others as one usage");
    }
    None
}

fn answers(
    resolutions: Vec<Resolution<'_>>,
    checks: Vec<CheckedCounters>,
    now_ms: i64,
    together: bool,
) -> Vec<Checked> {
    let mut decided = checks.into_iter();
    let mut answers: Vec<_> =
        resolutions.into_iter().map(|each| answer(each, &mut decided, now_ms)).collect();
    if together && answers.iter().any(|answer| !answer.allowed) {
        answers.iter_mut().for_each(|answer| answer.allowed = false);
    }
    answers
}

fn answer(each: Resolution<'_>, decided: &mut impl Iterator<Item = CheckedCounters>, now_ms: i64) -> Checked {
    let units = &each.check.units;
    let resolved = match each.resolved {
        Ok(resolved) if resolved.counters.is_empty() => return allowed(Vec::new(), units),
        Ok(resolved) => resolved,
        Err(refusal) => return refused(*refusal, units),
    };
    let (refusing, readings) =
        decided.next().map_or_else(Default::default, |counters| (counters.refusing, counters.readings));
    if refusing.is_empty() {
        return allowed(limit_statuses(resolved, &each.request.subjects, &readings, now_ms), units);
    }
    let subjects: Vec<_> = each.request.subjects.iter().collect();
    let asked = Asked { amounts: units, best_effort: false, subjects: &subjects };
    refused(refusal(asked, &resolved.counters, &readings, &refusing, now_ms), units)
}

fn allowed(limits: Vec<LimitStatus>, units: &[Units]) -> Checked {
    Checked {
        allowed: true,
        remaining_calls: remaining_calls(&limits, units),
        retry_after_ms: None,
        decision_id: Uuid::now_v7(),
        degraded: false,
        limits,
        refused_by: Vec::new(),
    }
}

fn refused(refusal: Refusal, units: &[Units]) -> Checked {
    Checked {
        allowed: false,
        remaining_calls: remaining_calls(&refusal.limits, units),
        retry_after_ms: refusal.retry_after_ms,
        decision_id: refusal.decision_id,
        degraded: false,
        limits: refusal.limits,
        refused_by: refusal.refused_by,
    }
}

/// How often work of these amounts still fits under all limits that refuse.
fn remaining_calls(limits: &[LimitStatus], units: &[Units]) -> Option<i64> {
    let of_limit = |limit: &LimitStatus| {
        let need = need(&limit.counter.lines, units);
        (need > 0).then(|| limit.remaining.get() / need)
    };
    limits.iter().filter(|limit| limit.counter.kind.refuses()).filter_map(of_limit).min()
}
