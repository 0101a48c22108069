//! One tenant's policy, computed once, so that a request costs a few look-ups.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use super::chain::{Candidate, Chain, CounterIdentity, Says};
use super::counter::{CounterKey, CounterName, LimitSignature, Resets};
use super::resolve::{COUNTERS_MAX, Level, Resolved, TooManyCounters};
use super::snapshot::Policy;
use crate::domain::algorithms::{Parameters, calendar};
use crate::domain::amount::Decimals;
use crate::domain::counter::{Counter, Source};
use crate::domain::ids::{LimitId, MeterId, OperationId, PlanId, Subject, SubjectKind, TenantId};
use crate::domain::instant::Instant;
use crate::domain::limit::{Class, Kind, Limit, Scope, Span};
use crate::domain::load::LoadLevel;
use crate::domain::period::Windows;
use crate::domain::plan::{PeriodTerms, PlanDefinition, QuotaMode};
use crate::domain::tenant::{Override, OverrideLevel, TenantDefinition};

/// A tenant under one version of the policy.
#[derive(Debug)]
pub struct TenantPolicy {
    /// The tenant.
    pub tenant: TenantId,
    /// Its plan.
    pub plan: Option<PlanId>,
    /// The version of the policy that it was computed from.
    pub version: u64,
    /// Whether new work of it is refused.
    pub archived: bool,
    /// The rules for the tenant as a whole, and for each subject without any of its own.
    of_all: Rules,
    /// The rules for the subjects with a plan, an override or a reset of their own.
    of_subjects: HashMap<Subject, Rules>,
    quotas: HashMap<MeterId, QuotaRule>,
}

#[derive(Debug)]
struct QuotaRule {
    mode: QuotaMode,
    terms: PeriodTerms,
    decimals: Decimals,
    identity: CounterIdentity,
}

/// The chains of every limit id, by each meter that they may count.
#[derive(Debug, Default)]
struct Rules(HashMap<MeterId, Vec<Arc<Chain>>>);

/// A definition names something that the policy does not have: snapshot and tenant do not belong together.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Dangling {
    /// A plan.
    #[error("tenant `{tenant}` names the plan `{plan}`, which does not exist")]
    Plan {
        /// Its tenant.
        tenant: TenantId,
        /// Which plan.
        plan: PlanId,
    },
    /// A meter.
    #[error("a limit or quota of tenant `{tenant}` names the meter `{meter}`, which does not exist")]
    Meter {
        /// Its tenant.
        tenant: TenantId,
        /// Its meter.
        meter: MeterId,
    },
}

impl TenantPolicy {
    /// Computes the tenant's policy. `resets` are stored with the tenant.
    pub fn new(policy: &Policy, tenant: &TenantDefinition, resets: &Resets) -> Result<Self, Dangling> {
        Self::with_subjects(policy, tenant, resets, &BTreeSet::new())
    }

    /// The same, with separate rules for `subjects` even where they need none.
    pub(super) fn with_subjects(
        policy: &Policy,
        tenant: &TenantDefinition,
        resets: &Resets,
        subjects: &BTreeSet<Subject>,
    ) -> Result<Self, Dangling> {
        let sources = Sources::new(policy, tenant)?;
        let own = own_subjects(tenant).chain(resets.subjects().cloned()).chain(subjects.iter().cloned());
        let own: BTreeSet<Subject> = own.collect();
        Ok(Self {
            tenant: tenant.id.clone(),
            plan: tenant.plan.clone(),
            version: policy.version,
            archived: tenant.archived,
            of_all: sources.rules(None, resets),
            of_subjects: own
                .into_iter()
                .map(|subject| (subject.clone(), sources.rules(Some(&subject), resets)))
                .collect(),
            quotas: sources.quotas(resets),
        })
    }

    /// The subjects that have rules of their own.
    pub fn own_subjects(&self) -> impl Iterator<Item = &Subject> {
        self.of_subjects.keys()
    }

    /// The counters of a request at `at_ms`. `meters` are those of its lines, each once; `windows` are the tenant's
    /// around `at_ms`; `operation` is none for work given by lines.
    pub fn resolve<'a>(
        &self,
        meters: impl IntoIterator<Item = &'a MeterId>,
        subjects: &[Subject],
        operation: Option<&OperationId>,
        at_ms: i64,
        windows: &Windows,
    ) -> Result<Resolved, TooManyCounters> {
        let work = operation.map_or(Work::Lines, Work::Operation);
        let resolved = self.collect(meters, subjects, work, at_ms, windows);
        let counters = resolved.counters.len();
        if counters > COUNTERS_MAX { Err(TooManyCounters(counters)) } else { Ok(resolved) }
    }

    /// What a period of the meter's quota opens with; none where there is no such quota.
    pub fn period_terms(&self, meter: &MeterId) -> Option<PeriodTerms> {
        self.quotas.get(meter).map(|quota| quota.terms)
    }

    /// The counters of every limit and quota that any work of the tenant and of `subjects` may meet at `at_ms`: a
    /// reader is shown these, and a restore fills them. A line's index is that of its meter in [`Self::meters`].
    pub fn overview(&self, subjects: &[Subject], at_ms: i64, windows: &Windows) -> Resolved {
        self.collect(self.meters(), subjects, Work::Any, at_ms, windows)
    }

    /// The counter of a meter's quota at `at_ms`, for work of this meter alone.
    pub fn quota_counter(&self, meter: &MeterId, at_ms: i64, windows: &Windows) -> Option<Counter> {
        let request =
            Request { tenant: &self.tenant, meter, line: index_of(0), work: Work::Any, at_ms, windows };
        self.quotas.get(meter).map(|rule| rule.counter(&request))
    }

    fn collect<'a>(
        &self,
        meters: impl IntoIterator<Item = &'a MeterId>,
        subjects: &[Subject],
        work: Work<'_>,
        at_ms: i64,
        windows: &Windows,
    ) -> Resolved {
        let mut resolved = Resolved::default();
        let mut quotas = Vec::new();
        for (line, meter) in meters.into_iter().enumerate() {
            let request = Request { tenant: &self.tenant, meter, line: index_of(line), work, at_ms, windows };
            let mut is_limited = self.of_all.collect(&request, None, &mut resolved.counters);
            for (index, subject) in subjects.iter().enumerate() {
                let rules = self.of_subjects.get(subject).unwrap_or(&self.of_all);
                let whose = Some((index_of(index + 1), subject));
                is_limited |= rules.collect(&request, whose, &mut resolved.counters);
            }
            let quota = self.quotas.get(meter).map(|rule| rule.counter(&request));
            is_limited |= quota.is_some();
            quotas.extend(quota);
            if !is_limited {
                resolved.without.push(line);
            }
        }
        resolved.counters.append(&mut quotas);
        resolved
    }

    /// The kinds of subject that have counters of class quota at `at_ms`.
    pub fn reconciled_kinds(&self, at_ms: i64) -> BTreeSet<SubjectKind> {
        self.reconciled_limits(at_ms).filter_map(|limit| limit.subject_kind.clone()).collect()
    }

    /// When the first of the windows began in which subjects have counters of class quota at `at_ms`; none without such
    /// counters.
    pub fn reconciled_since(&self, at_ms: i64, windows: &Windows) -> Option<i64> {
        let starts = self.reconciled_limits(at_ms).filter_map(|limit| match limit.algorithm.span() {
            Span::Calendar(kind) => Some(windows.get(kind).start_ms),
            _ => None,
        });
        starts.min()
    }

    /// The limits of class quota that count subjects at `at_ms`.
    fn reconciled_limits(&self, at_ms: i64) -> impl Iterator<Item = &Limit> {
        let rules = std::iter::once(&self.of_all).chain(self.of_subjects.values());
        let limits = rules.flat_map(move |rules| rules.winners(at_ms)).map(|winner| &*winner.limit);
        limits.filter(|limit| limit.scope == Scope::Subject && limit.class == Class::Quota)
    }

    /// Every meter on which the tenant, or one of its subjects, may have a limit or a quota; sorted.
    pub fn meters(&self) -> BTreeSet<&MeterId> {
        let rules = std::iter::once(&self.of_all).chain(self.of_subjects.values());
        rules.flat_map(|rules| rules.0.keys()).chain(self.quotas.keys()).collect()
    }

    /// The counters in force at `at_ms`; subjects with rules of their own have theirs apart.
    pub(super) fn counters(&self, at_ms: i64) -> BTreeMap<CounterKey, CounterIdentity> {
        let mut counters = BTreeMap::new();
        for winner in self.of_all.winners(at_ms) {
            let counter = CounterName::of_limit(&winner.limit.id);
            counters.insert(CounterKey { subject: None, counter }, winner.identity);
        }
        for (subject, rules) in &self.of_subjects {
            for winner in rules.winners(at_ms).filter(|winner| is_for(&winner.limit, Some(&subject.kind))) {
                let counter = CounterName::of_limit(&winner.limit.id);
                counters.insert(CounterKey { subject: Some(subject.clone()), counter }, winner.identity);
            }
        }
        for (meter, rule) in &self.quotas {
            let counter = CounterName::of_quota(meter);
            counters.insert(CounterKey { subject: None, counter }, rule.identity);
        }
        counters
    }
}

/// The kind of work that is asked about.
#[derive(Clone, Copy)]
enum Work<'a> {
    /// Work under an operation.
    Operation(&'a OperationId),
    /// Work given by lines.
    Lines,
    /// Any of the two.
    Any,
}

impl Work<'_> {
    fn counts_under(self, limit: &Limit) -> bool {
        match self {
            Self::Operation(operation) => limit.counts(Some(operation)),
            Self::Lines => limit.counts(None),
            Self::Any => true,
        }
    }
}

/// One line of a request, and its time.
struct Request<'a> {
    tenant: &'a TenantId,
    meter: &'a MeterId,
    line: u8,
    work: Work<'a>,
    at_ms: i64,
    windows: &'a Windows,
}

/// The index of a line or subject in a call; larger ones become the largest.
fn index_of(index: usize) -> u8 {
    u8::try_from(index).unwrap_or(u8::MAX)
}

/// Whether a limit counts for the tenant as a whole (no kind) or for a subject of `kind`.
fn is_for(limit: &Limit, kind: Option<&SubjectKind>) -> bool {
    match kind {
        None => limit.scope == Scope::Tenant,
        Some(_) => limit.scope == Scope::Subject && limit.subject_kind.as_ref() == kind,
    }
}

impl Rules {
    /// Adds the counters of a line, or the line to the counter of a budget that another line met. Returns whether there
    /// is a limit for it, also one that leaves these out as it is rolled out to others only. A shadow limit only
    /// watches: a meter that has no other stays one without limit.
    fn collect(
        &self,
        request: &Request<'_>,
        subject: Option<(u8, &Subject)>,
        found: &mut Vec<Counter>,
    ) -> bool {
        let mut is_limited = false;
        for chain in self.0.get(request.meter).into_iter().flatten() {
            let Some(winner) = chain.winner(request.at_ms) else { continue };
            let limit = &winner.limit;
            let Some(weight) = winner.factor(request.meter) else { continue };
            let counts = request.work.counts_under(limit);
            let (scope_index, whose) = subject.map_or((0, None), |(index, subject)| (index, Some(subject)));
            let is_for_them = is_for(limit, whose.map(|subject| &subject.kind));
            is_limited |= counts && is_for_them && winner.kind != Kind::Shadow;
            if !(counts && is_for_them && limit.applies_to(request.tenant, whose)) {
                continue;
            }
            let is_it = |counter: &&mut Counter| {
                (counter.scope_index, counter.field) == (scope_index, winner.identity.field)
            };
            let met = if limit.limited.is_budget() { found.iter_mut().find(is_it) } else { None };
            let line = (request.line, weight);
            match met {
                Some(counter) => counter.lines.push(line),
                None => found.push(winner.counter(line, request.meter, scope_index, request.windows)),
            }
        }
        is_limited
    }

    /// The winners at `at_ms`; the winner of a chain that may count several meters appears once for each.
    fn winners(&self, at_ms: i64) -> impl Iterator<Item = &super::chain::Winner> {
        self.0.values().flatten().filter_map(move |chain| chain.winner(at_ms))
    }
}

impl QuotaRule {
    fn counter(&self, request: &Request<'_>) -> Counter {
        Counter {
            scope_index: 0,
            is_light: false,
            field: self.identity.field,
            kind: if self.mode == QuotaMode::Soft { Kind::Soft } else { Kind::Hard },
            class: Class::Quota,
            lines: vec![(request.line, 1)],
            capacity: self.terms.included,
            load: LoadLevel::Full,
            parameters: Parameters::Calendar(calendar::Parameters { window: request.windows.period }),
            since_ms: self.identity.since_ms,
            meter: request.meter.clone(),
            decimals: self.decimals,
            budgeted: None,
            source: Source::Quota(self.mode),
        }
    }
}

pub(super) fn own_subjects(tenant: &TenantDefinition) -> impl Iterator<Item = Subject> {
    let with_plan = tenant.subjects.iter().map(|subject| subject.subject());
    with_plan.chain(tenant.overrides.iter().filter_map(Override::for_subject))
}

/// All definitions and overrides that apply to a tenant.
struct Sources<'a> {
    policy: &'a Policy,
    tenant: &'a TenantDefinition,
    plan: Option<&'a PlanDefinition>,
    /// The subjects' own plans.
    plans: HashMap<Subject, &'a PlanDefinition>,
}

impl<'a> Sources<'a> {
    fn new(policy: &'a Policy, tenant: &'a TenantDefinition) -> Result<Self, Dangling> {
        let find = |plan: &PlanId| {
            let missing = || Dangling::Plan { tenant: tenant.id.clone(), plan: plan.clone() };
            policy.plan(plan).map(Arc::as_ref).ok_or_else(missing)
        };
        let plan = tenant.plan.as_ref().map(find).transpose()?;
        let plans = tenant.subjects.iter().map(|named| Ok((named.subject(), find(&named.plan)?)));
        let sources = Self { policy, tenant, plan, plans: plans.collect::<Result<_, _>>()? };
        sources.refuse_unknown_meters()?;
        Ok(sources)
    }

    fn refuse_unknown_meters(&self) -> Result<(), Dangling> {
        let in_plans = self.plan.into_iter().chain(self.plans.values().copied());
        let limits = in_plans.flat_map(|plan| &plan.limits).chain(&self.tenant.limits);
        let limits = limits.chain(self.policy.definitions.limits.values());
        let limits = limits.flat_map(|limit| limit.limited.meters());
        let quotas = self.plan.into_iter().flat_map(|plan| &plan.quotas).map(|quota| &quota.meter);
        match limits.chain(quotas).find(|meter| self.policy.meter(meter).is_none()) {
            Some(meter) => Err(Dangling::Meter { tenant: self.tenant.id.clone(), meter: meter.clone() }),
            None => Ok(()),
        }
    }

    /// The decimals of a meter that [`Self::new`] has found.
    fn decimals(&self, meter: &MeterId) -> Decimals {
        self.policy.definitions.decimals(meter).unwrap_or_default()
    }

    /// The rules of one subject or, without one, of all other subjects and the tenant as a whole.
    fn rules(&self, subject: Option<&Subject>, resets: &Resets) -> Rules {
        let mut by_meter: HashMap<MeterId, Vec<Arc<Chain>>> = HashMap::new();
        for (id, candidates) in self.candidates(subject) {
            let key = CounterKey { subject: subject.cloned(), counter: CounterName::of_limit(id) };
            let decimals_of = |meter: &MeterId| self.decimals(meter);
            let chain = Chain::new(&key, &candidates, decimals_of, &self.policy.generations, resets);
            let chain = Arc::new(chain);
            for meter in chain.meters() {
                by_meter.entry(meter.clone()).or_default().push(chain.clone());
            }
        }
        Rules(by_meter)
    }

    /// The candidates for each limit id, in order of precedence; sorted by id, so that answers have one order.
    fn candidates(&self, subject: Option<&Subject>) -> BTreeMap<&'a LimitId, Vec<Candidate>> {
        let mut candidates: BTreeMap<&'a LimitId, Vec<Candidate>> = BTreeMap::new();
        let mut add = |id: &'a LimitId, level: Level, says: Says| {
            candidates.entry(id).or_default().push(Candidate { level, says });
        };
        let overrides = |at: OverrideLevel| self.tenant.overrides.iter().filter(move |o| o.level == at);
        for each in overrides(OverrideLevel::Emergency) {
            add(&each.limit, Level::Emergency, says(each));
        }
        if let Some(subject) = subject {
            for each in overrides(OverrideLevel::Subject) {
                if each.for_subject().as_ref() == Some(subject) {
                    add(&each.limit, Level::Subject, says(each));
                }
            }
            let own_plan = self.plans.get(subject).into_iter().flat_map(|plan| &plan.limits);
            for limit in own_plan.filter(|limit| is_for(limit, Some(&subject.kind))) {
                add(&limit.id, Level::Subject, Says::Limit(limit.clone()));
            }
        }
        for each in overrides(OverrideLevel::Tenant) {
            add(&each.limit, Level::Tenant, says(each));
        }
        for limit in &self.tenant.limits {
            add(&limit.id, Level::Tenant, Says::Limit(limit.clone()));
        }
        for limit in self.plan.into_iter().flat_map(|plan| &plan.limits) {
            add(&limit.id, Level::Plan, Says::Limit(limit.clone()));
        }
        for limit in self.policy.definitions.limits.values().filter(|limit| !limit.is_global()) {
            add(&limit.id, Level::Default, Says::Limit(limit.clone()));
        }
        candidates
    }

    fn quotas(&self, resets: &Resets) -> HashMap<MeterId, QuotaRule> {
        let quotas = self.plan.into_iter().flat_map(|plan| &plan.quotas).map(|quota| {
            let key = CounterKey { subject: None, counter: CounterName::of_quota(&quota.meter) };
            let decimals = self.decimals(&quota.meter);
            let shape = LimitSignature::of_quota(&quota.meter);
            let identity = CounterIdentity::new(&key, shape, 0, &self.policy.generations, resets);
            let terms = quota.terms(decimals);
            (quota.meter.clone(), QuotaRule { mode: quota.mode, terms, decimals, identity })
        });
        quotas.collect()
    }
}

fn says(each: &Override) -> Says {
    let Override { capacity, factor, kind, until, .. } = *each;
    Says::Other { capacity, factor, kind, until_ms: until.map(Instant::ms) }
}
