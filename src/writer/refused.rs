//! Batches that the ledger refuses: each partition is booked by itself, then by halves. The one event that is refused
//! alone goes to quarantine, and all others are booked.

use super::apply::{Applied, PartitionEvents, apply, apply_or_quarantine, was_overtaken};
use super::fail_point::FailPoint;
use super::failure::Failure;
use super::observer::WriterObserver;
use super::outbox::Outbox;
use super::run::{Pass, Writer};
use crate::domain::boundary::is_boundary;
use crate::domain::checkpoint::is_checkpoint;
use crate::ledger::LedgerError;

/// How many events of a partition go to quarantine in one pass; then the other partitions have their turn.
const QUARANTINED_MAX: usize = 16;

/// What became of a batch that was booked part by part.
#[derive(Debug, Default)]
struct Parts {
    applied: Applied,
    /// Whether something was refused.
    refused: bool,
    /// Why a partition stands still.
    error: Option<LedgerError>,
}

impl<O: Outbox, W: WriterObserver> Writer<O, W> {
    /// Books what was read: part by part, where the ledger has refused the batch before. None where nothing was booked
    /// and the next pass follows at once.
    pub(super) async fn book_batch(
        &mut self,
        parts: Vec<PartitionEvents>,
        pass: &mut Pass,
    ) -> Result<Option<Applied>, Failure> {
        if self.part_by_part {
            return self.book_part_by_part(parts, pass).await;
        }
        match apply(&self.ledger, parts, &self.fail_points).await {
            Ok(applied) => Ok(Some(applied)),
            Err(error) if was_overtaken(&error) => {
                self.leased_until = None;
                Ok(None)
            }
            Err(error) if !error.is_transient() => {
                self.watch.failed(&error.to_string());
                self.part_by_part = true;
                Ok(None)
            }
            Err(error) => {
                self.fail_points.check(FailPoint::BeforeCommit)?;
                Err(error.into())
            }
        }
    }

    async fn book_part_by_part(
        &mut self,
        parts: Vec<PartitionEvents>,
        pass: &mut Pass,
    ) -> Result<Option<Applied>, Failure> {
        let mut done = Parts::default();
        for part in parts {
            if let Err(error) = self.book_part(part, &mut done).await {
                done.refused |= !error.is_transient() && !was_overtaken(&error);
                done.error.get_or_insert(error);
            }
        }
        self.part_by_part = done.refused;
        let booked_nothing = done.applied.booked.is_empty();
        match done.error {
            None => pass.more |= done.refused,
            Some(error) if was_overtaken(&error) => {
                self.leased_until = None;
                pass.more = true;
            }
            Some(error) if booked_nothing => {
                self.fail_points.check(FailPoint::BeforeCommit)?;
                return Err(error.into());
            }
            Some(error) => {
                self.watch.failed(&error.to_string());
                pass.doubted = true;
            }
        }
        Ok(Some(done.applied))
    }

    /// Books the events of a partition in order, as many at once as the ledger takes.
    async fn book_part(&self, mut part: PartitionEvents, done: &mut Parts) -> Result<(), LedgerError> {
        let (mut count, mut quarantined) = (part.events.len(), 0);
        while !part.events.is_empty() && quarantined < QUARANTINED_MAX {
            let first = part.first(count);
            count = first.events.len();
            let applied = match apply(&self.ledger, vec![first.clone()], &self.fail_points).await {
                Ok(applied) => {
                    count *= 2;
                    applied
                }
                Err(LedgerError::Refused(_)) if count > 1 => {
                    done.refused = true;
                    count /= 2;
                    continue;
                }
                Err(LedgerError::Refused(why)) if may_wait(&first) => {
                    (done.refused, quarantined) = (true, quarantined + 1);
                    apply_or_quarantine(&self.ledger, vec![first], Some(why), &self.fail_points).await?
                }
                Err(error) => return Err(error),
            };
            let Some((_, booked, _)) = applied.booked.first() else { return Ok(()) };
            part.go_on_after(*booked);
            done.applied.add(applied);
        }
        Ok(())
    }
}

/// Whether these may wait in quarantine: the books are read as of a checkpoint's place, and of a boundary nothing is
/// booked that could be refused.
fn may_wait(part: &PartitionEvents) -> bool {
    part.events.iter().all(|(_, event)| !is_checkpoint(event) && !is_boundary(event))
}
