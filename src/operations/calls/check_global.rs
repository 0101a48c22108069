//! Checks under limits that count all tenants: these are asked first, and get back what the tenant's limits refuse.

use super::check::{LightCheck, Resolution, denies};
use super::check_answer::remaining_calls;
use super::global::{ask, reveal, taking_of};
use super::{Calls, KEPT_CHANGING};
use crate::domain::counter::Counter;
use crate::domain::ids::Epoch;
use crate::gate::check::CHECKS_MAX;
use crate::gate::{CheckOutcome, CheckedCounters, GateError, GivenBack};
use crate::operations::answers::Checked;
use crate::operations::error::Answer;
use crate::telemetry::labels::Script;

/// What limits over all tenants said to checks, by the checks' numbers.
#[derive(Default)]
pub(super) struct GlobalChecks {
    checks: Vec<Option<GlobalChecked>>,
}

struct GlobalChecked {
    counters: Vec<Counter>,
    decided: CheckedCounters,
    /// In which epoch and when (unix ms) it was counted; none where it was only asked.
    counted: Option<(Epoch, i64)>,
}

/// What was said to checks; or what they fall under, where nobody can be asked.
type Said<'a> = Result<GlobalChecks, (Vec<Resolution<'a>>, GateError)>;

impl GlobalChecks {
    /// Whether they refuse this check, or one of those that go together with it.
    pub(super) fn refuse(&self, number: usize, together: bool) -> bool {
        let refuse = |check: &Option<GlobalChecked>| {
            check.as_ref().is_some_and(|check| !check.decided.refusing.is_empty())
        };
        match together {
            true => self.checks.iter().any(refuse),
            false => self.checks.get(number).is_some_and(refuse),
        }
    }

    /// Each check with what both its partition and these limits decided.
    pub(super) fn joined<'a>(
        &self,
        resolutions: Vec<Resolution<'a>>,
        checks: Vec<Option<CheckedCounters>>,
    ) -> Vec<(Resolution<'a>, Option<CheckedCounters>)> {
        let mut joined: Vec<_> = resolutions.into_iter().zip(checks).collect();
        for ((resolution, decided), first) in joined.iter_mut().zip(&self.checks) {
            if let (Ok(resolved), Some(first)) = (&mut resolution.resolved, first) {
                let before = resolved.counters.len();
                let refusing = first.decided.refusing.iter();
                let refusing = refusing.map(|(index, wait_ms)| (index + before, *wait_ms));
                let nothing =
                    || CheckedCounters { refusing: Vec::new(), readings: Vec::new(), start_after_ms: 0 };
                let both = decided.get_or_insert_with(nothing);
                both.refusing.extend(refusing);
                both.readings.extend_from_slice(&first.decided.readings);
                resolved.counters.extend_from_slice(&first.counters);
            }
        }
        joined
    }
}

impl Calls {
    /// Counts checks under the limits that count all tenants; those that only look ask them.
    pub(super) async fn check_globally<'a>(
        &self,
        asked: &[&'a LightCheck<'a>],
        together: bool,
    ) -> Answer<Said<'a>> {
        let mut at_ms = self.core.gate_now_ms();
        let mut recovery = self.memory.recovery(KEPT_CHANGING);
        loop {
            self.admission.may_admit(true)?;
            let resolutions = self.resolve_checks(asked, at_ms)?;
            let only_peek = denies(&resolutions, together);
            let counts = |each: &&Resolution<'_>| each.resolved.is_ok() && !each.globals.is_empty();
            let asks: Vec<_> = resolutions
                .iter()
                .filter(counts)
                .map(|each| {
                    ask(&each.globals, &each.check.units, at_ms, each.check.request.peeks || only_peek)
                })
                .collect();
            if asks.is_empty() {
                return Ok(Ok(GlobalChecks::default()));
            }
            debug_assert!(asks.len() <= CHECKS_MAX, "no more than the checks themselves");
            let partition = self.core.gate.global_partition();
            let call = self.core.gate.check(partition, &asks, together, self.core.script_now());
            match self.core.timed(Script::Check, call).await {
                Ok(CheckOutcome::Decided { checks, epoch, now_ms }) => {
                    drop(asks);
                    let is_off = together && checks.iter().any(|check| !check.refusing.is_empty());
                    let mut decided = checks.into_iter();
                    let one = |each: Resolution<'_>| {
                        let is_asked = counts(&&each);
                        let looks = each.check.request.peeks || only_peek || is_off;
                        let decided = is_asked.then(|| decided.next()).flatten()?;
                        let counted = (!looks && decided.refusing.is_empty()).then_some((epoch, now_ms));
                        Some(GlobalChecked { counters: each.globals, decided, counted })
                    };
                    let checks = resolutions.into_iter().map(one).collect();
                    return Ok(Ok(GlobalChecks { checks }));
                }
                Ok(CheckOutcome::StaleWindow { now_ms }) => {
                    at_ms = now_ms;
                    recovery.again()?;
                }
                Err(error) => {
                    if let Some(away) = recovery.after_failure(error).await? {
                        drop(asks);
                        return Ok(Err((resolutions, away)));
                    }
                }
            }
        }
    }

    /// Gives back what was counted of checks that are not allowed after all. Where they may have been allowed, it
    /// stays.
    pub(super) async fn give_back_refused(
        &self,
        asked: &[&LightCheck<'_>],
        first: &GlobalChecks,
        answers: &Answer<Vec<Checked>>,
    ) {
        let Ok(answers) = answers else { return };
        let each = first.checks.iter().zip(asked).zip(answers);
        let refused = each.filter(|(_, answer)| !answer.allowed).filter_map(|((first, check), _)| {
            let first = first.as_ref()?;
            let readings = &first.decided.readings;
            Some(taking_of(&first.counters, &check.units, readings, first.counted?))
        });
        let takings: Vec<_> = refused.collect();
        if !takings.is_empty() {
            self.give_back(GivenBack::Takings(&takings)).await;
        }
    }

    /// Shows the figures of limits over all tenants to a caller who may see them.
    pub(super) fn reveal_check(check: &LightCheck<'_>, checked: &mut Checked) {
        if check.request.sees_all_tenants {
            reveal(&mut checked.limits);
            reveal(checked.refused_by.iter_mut().map(|refused| &mut refused.limit));
            checked.remaining_calls = remaining_calls(&checked.limits, &check.units);
        }
    }
}
