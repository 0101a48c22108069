//! Partitions that a run of a job leaves to the next run: a server does not answer for them, or the writer lags there.
//! The run goes on with the others, and fails at its end.

use std::collections::{BTreeMap, BTreeSet};

use crate::domain::ids::Partition;
use crate::operations::damage::{Damage, Work};
use crate::operations::error::{Answer, OperationError};

/// The partitions that a run leaves, each with the reason.
#[derive(Debug, Default)]
pub(super) struct LeftPartitions {
    left: BTreeMap<Partition, OperationError>,
    /// Those of which one item has taken too long for a statement.
    slow: BTreeSet<Partition>,
}

impl LeftPartitions {
    /// Whether the partition is left: what there is to do for it waits.
    pub(super) fn has(&self, partition: Partition) -> bool {
        self.left.contains_key(&partition)
    }

    /// What concerns a partition that is not left, for work there beside that in others: to be
    /// [merged](Self::merge) after it.
    pub(super) fn of(&self, partition: Partition) -> Self {
        Self { left: BTreeMap::new(), slow: self.slow.get(&partition).copied().into_iter().collect() }
    }

    /// Adds what became of other partitions.
    pub(super) fn merge(&mut self, other: Self) {
        for (partition, error) in other.left {
            self.left.entry(partition).or_insert(error);
        }
        self.slow.extend(other.slow);
    }

    /// Leaves the partition, for which a server is away.
    pub(super) fn leave(&mut self, partition: Partition, error: OperationError) {
        tracing::info!(%partition, %error, "a partition is left to the next run; the others go on");
        self.left.entry(partition).or_insert(error);
    }

    /// Whether it is the item that cannot be done, or alone has taken too long for a statement. Where a server is away,
    /// or is slow for more than one item, the partition is to be left.
    pub(super) fn is_of_item(&mut self, partition: Partition, error: &OperationError) -> bool {
        !error.is_server_away() || error.is_statement_timeout() && self.slow.insert(partition)
    }

    /// Goes on without an item that was not done: reports it, or leaves its partition.
    pub(super) async fn go_on(
        &mut self,
        partition: Partition,
        error: OperationError,
        (damage, work, item): (&Damage, Work, &str),
    ) {
        if self.is_of_item(partition, &error) {
            damage.pass_over(work, item, &error).await;
        } else {
            self.leave(partition, error);
        }
    }

    /// The result of what was done for one tenant.
    ///
    /// Errors: its partition is left, and why.
    pub(super) fn end<T>(self, done: T) -> Answer<T> {
        self.left.into_values().next().map_or(Ok(done), Err)
    }

    /// The result of the run.
    ///
    /// Errors: partitions are left; which, and why the first of them is.
    pub(super) fn end_run<T>(self, done: T) -> Answer<T> {
        let names: Vec<_> = self.left.keys().map(ToString::to_string).collect();
        let named = |why: String| format!("{why} (left to the next run: partition {})", names.join(", "));
        match self.left.into_values().next() {
            None => Ok(done),
            Some(OperationError::GateUnavailable(why)) => Err(OperationError::GateUnavailable(named(why))),
            Some(OperationError::LedgerUnavailable(why)) => {
                Err(OperationError::LedgerUnavailable(named(why)))
            }
            Some(other) => Err(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_leaves_partitions_names_them_and_fails() {
        let mut left = LeftPartitions::default();
        assert_eq!(left.end_run(7).unwrap(), 7);
        left = LeftPartitions::default();
        for number in [5, 3] {
            let away = OperationError::GateUnavailable(format!("{number} lags"));
            left.left.insert(Partition::new(number).unwrap(), away);
        }
        let said = left.end_run(7).unwrap_err();
        assert!(said.is_server_away(), "{said}");
        assert!(said.to_string().ends_with("3 lags (left to the next run: partition p03, p05)"), "{said}");
    }

    #[test]
    fn what_is_left_by_work_side_by_side_is_left_by_the_run_with_its_first_reason() {
        let [one, other] = [1, 2].map(|number| Partition::new(number).unwrap());
        let away = |why: &str| OperationError::GateUnavailable(why.to_owned());
        let mut left = LeftPartitions::default();
        left.slow.insert(one);
        assert_eq!((left.of(one).slow.len(), left.of(other).slow.len()), (1, 0), "each knows its own");
        let mut apart = [left.of(one), left.of(other)];
        apart[0].leave(one, away("first"));
        apart[1].slow.insert(other);
        apart.into_iter().for_each(|apart| left.merge(apart));
        assert_eq!((left.has(one), left.has(other), left.slow.len()), (true, false, 2));
        let mut again = LeftPartitions::default();
        again.leave(one, away("second"));
        left.merge(again);
        assert!(left.end_run(()).unwrap_err().to_string().contains("first"));
    }
}
