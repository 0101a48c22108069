//! The refusals of the last hour, as many as memory may hold.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use uuid::Uuid;

use crate::domain::decision::Decision;

const HOUR_MS: i64 = 3_600_000;

/// Refusals in the order in which they were made.
pub(super) struct Refusals {
    most: usize,
    in_order: VecDeque<Uuid>,
    by_id: HashMap<Uuid, Arc<Decision>>,
}

impl Refusals {
    /// None yet, and never more than `most`.
    pub(super) fn new(most: usize) -> Self {
        Self { most, in_order: VecDeque::new(), by_id: HashMap::new() }
    }

    /// Adds one. The oldest go where there are too many, and those that are older than an hour.
    pub(super) fn add(&mut self, refusal: Arc<Decision>) {
        let now_ms = refusal.at_ms;
        self.in_order.push_back(refusal.id);
        self.by_id.insert(refusal.id, refusal);
        while let Some(oldest) = self.in_order.front() {
            let is_old = self.by_id.get(oldest).is_none_or(|oldest| is_over(oldest, now_ms));
            if self.in_order.len() <= self.most && !is_old {
                return;
            }
            self.by_id.remove(oldest);
            self.in_order.pop_front();
        }
    }

    /// The refusal with this id, unless it is older than an hour.
    pub(super) fn get(&self, id: Uuid, now_ms: i64) -> Option<Arc<Decision>> {
        self.by_id.get(&id).filter(|refusal| !is_over(refusal, now_ms)).cloned()
    }
}

fn is_over(refusal: &Decision, now_ms: i64) -> bool {
    now_ms.saturating_sub(refusal.at_ms) >= HOUR_MS
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::decision::DecidedCall;
    use crate::domain::ids::TenantId;

    fn refusal(number: u128, at_ms: i64) -> Arc<Decision> {
        Arc::new(Decision {
            id: Uuid::from_u128(number),
            at_ms,
            tenant: TenantId::parse("acme").unwrap(),
            call: DecidedCall::Reserve,
            operation: None,
            is_admitted: false,
            code: Some("rate_limited".into()),
            is_dry_run: false,
            is_degraded: false,
            policy_version: 1,
            subjects: Vec::new(),
            lines: Vec::new(),
            limits: Vec::new(),
            number: 0,
            reservation: None,
        })
    }

    fn known(refusals: &Refusals, now_ms: i64) -> Vec<u128> {
        (0..10).filter(|number| refusals.get(Uuid::from_u128(*number), now_ms).is_some()).collect()
    }

    #[test]
    fn the_oldest_refusals_go_where_there_are_too_many() {
        let mut refusals = Refusals::new(2);
        for number in 1..=4 {
            refusals.add(refusal(number, 0));
        }
        assert_eq!(known(&refusals, 0), [3, 4]);
        assert_eq!((refusals.in_order.len(), refusals.by_id.len()), (2, 2));
        let mut none = Refusals::new(0);
        none.add(refusal(1, 0));
        assert_eq!((known(&none, 0), none.in_order.len()), (vec![], 0));
    }

    #[test]
    fn a_refusal_is_known_for_an_hour_and_its_memory_is_freed_by_later_ones() {
        let mut refusals = Refusals::new(10);
        refusals.add(refusal(1, 0));
        refusals.add(refusal(2, 1));
        assert_eq!(known(&refusals, HOUR_MS - 1), [1, 2]);
        assert_eq!(known(&refusals, HOUR_MS), [2]);
        refusals.add(refusal(3, HOUR_MS));
        assert_eq!((refusals.in_order.len(), refusals.by_id.len()), (2, 2));
    }
}
