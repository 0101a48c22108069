//! The limits that count all tenants together: the same chains for every tenant, in windows of UTC.

use std::collections::HashMap;
use std::sync::Arc;

use super::chain::{Candidate, Chain, Says};
use super::counter::{CounterKey, CounterName, Generations, Resets};
use super::document::Definitions;
use super::resolve::{COUNTERS_MAX, Level, TooManyCounters};
use crate::domain::counter::Counter;
use crate::domain::ids::{MeterId, OperationId, TenantId};
use crate::domain::limit::Limit;
use crate::domain::period::{Calendar, Windows};

/// The global limits of a policy, by each meter that they count.
#[derive(Debug, Clone, Default)]
pub struct Globals(HashMap<MeterId, Vec<Arc<Chain>>>);

impl Globals {
    /// Those of these definitions. No plan, tenant or override changes one.
    pub(super) fn new(definitions: &Definitions, generations: &Generations) -> Self {
        let mut by_meter: HashMap<MeterId, Vec<Arc<Chain>>> = HashMap::new();
        for limit in definitions.limits.values().filter(|limit| limit.is_global()) {
            let key = CounterKey { subject: None, counter: CounterName::of_limit(&limit.id) };
            // A policy of an earlier version may have one with a punishment, which is refused now.
            let limit = Arc::new(Limit { punishment: None, ..(**limit).clone() });
            let candidates = [Candidate { level: Level::Default, says: Says::Limit(limit) }];
            let decimals_of = |meter: &MeterId| definitions.decimals(meter).unwrap_or_default();
            let chain = Chain::new(&key, &candidates, decimals_of, generations, &Resets::default());
            let chain = Arc::new(chain);
            for meter in chain.meters() {
                by_meter.entry(meter.clone()).or_default().push(chain.clone());
            }
        }
        Self(by_meter)
    }

    /// Whether any of them may ever count one of these meters.
    pub fn may_count<'a>(&self, meters: impl IntoIterator<Item = &'a MeterId>) -> bool {
        !self.0.is_empty() && meters.into_iter().any(|meter| self.0.contains_key(meter))
    }

    /// The windows in which they count around `at_ms`: those of UTC.
    pub fn windows(at_ms: i64) -> Windows {
        Calendar::default().windows(at_ms)
    }

    /// The counters under which work of a tenant falls at `at_ms`. `meters` are those of its lines, each once;
    /// `operation` is none for work given by lines.
    ///
    /// Errors: there are more than one decision may touch.
    pub fn counters<'a>(
        &self,
        tenant: &TenantId,
        meters: impl IntoIterator<Item = &'a MeterId>,
        operation: Option<&OperationId>,
        at_ms: i64,
    ) -> Result<Vec<Counter>, TooManyCounters> {
        let mut found: Vec<Counter> = Vec::new();
        if self.0.is_empty() {
            return Ok(found);
        }
        let windows = Self::windows(at_ms);
        for (line, meter) in meters.into_iter().enumerate() {
            let line = u8::try_from(line).unwrap_or(u8::MAX);
            for winner in self.0.get(meter).into_iter().flatten().filter_map(|chain| chain.winner(at_ms)) {
                let Some(weight) = winner.factor(meter) else { continue };
                if !(winner.limit.counts(operation) && winner.limit.applies_to(tenant, None)) {
                    continue;
                }
                match found.iter_mut().find(|counter| counter.field == winner.identity.field) {
                    Some(counter) => counter.lines.push((line, weight)),
                    None => found.push(winner.counter((line, weight), meter, 0, &windows)),
                }
            }
        }
        if found.len() > COUNTERS_MAX { Err(TooManyCounters(found.len())) } else { Ok(found) }
    }
}
