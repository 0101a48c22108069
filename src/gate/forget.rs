//! Forgetting a subject, whose name was erased: its counters go, and the light records that name it.

use redis::Value;

use super::Gate;
use super::error::GateError;
use super::scan::Walk;
use crate::domain::codec::Undecodable;
use crate::domain::ids::{Partition, Subject, TenantId};
use crate::domain::reservation::{Record, ReservationState, SubjectHash};

impl Gate {
    /// How many light reservations of a subject hold. Walks over all keys of the server.
    pub async fn light_holds_of(
        &self,
        partition: Partition,
        tenant: &TenantId,
        subject: &Subject,
    ) -> Result<usize, GateError> {
        let records = self.light_records_of(partition, tenant, subject).await?;
        Ok(records.iter().filter(|(_, is_open)| *is_open).count())
    }

    /// Drops a subject's counters, with their logs and what limits remember of its refused calls, and its light records
    /// that hold nothing, so that their keys are forgotten. A script that meets the subject later asks the ledger for
    /// it, as after a loss.
    pub async fn forget_subject(
        &self,
        partition: Partition,
        tenant: &TenantId,
        (subject, hash): (&Subject, SubjectHash),
    ) -> Result<(), GateError> {
        let hashes =
            [self.keys.subject(partition, tenant, hash), self.keys.light(partition, tenant, Some(hash))];
        let mut drop_all = redis::cmd("UNLINK");
        for (key, is_open) in self.light_records_of(partition, tenant, subject).await? {
            if !is_open {
                drop_all.arg(key);
            }
        }
        drop_all.arg(&hashes);
        // No hash has a field for a log.
        let mut walk = Walk::over(self.keys.logs_pattern(partition, tenant, hash));
        while let Some(logs) = walk.next(self).await? {
            drop_all.arg(logs);
        }
        self.plain(&drop_all).await?;
        Ok(())
    }

    /// The keys of a subject's light records, and whether each holds something in this epoch.
    async fn light_records_of(
        &self,
        partition: Partition,
        tenant: &TenantId,
        subject: &Subject,
    ) -> Result<Vec<(String, bool)>, GateError> {
        let epoch = self.epoch(partition);
        let (mut found, mut walk) = (Vec::new(), Walk::over(self.keys.light_pattern(partition)));
        while let Some(keys) = walk.next(self).await? {
            if keys.is_empty() {
                continue;
            }
            let Value::Array(records) = self.plain(redis::cmd("MGET").arg(&keys)).await? else {
                return Err(Undecodable("light records").into());
            };
            for (key, record) in keys.into_iter().zip(&records) {
                let Value::BulkString(record) = record else { continue };
                let Ok(Record { head, body, .. }) = Record::decode(record) else { continue };
                let names_it = |(named, _): &(Subject, SubjectHash)| named == subject;
                if body.tenant == *tenant && body.rest.is_some_and(|rest| rest.subjects.iter().any(names_it))
                {
                    let holds = head.state == ReservationState::Reserved && Some(head.epoch) == epoch;
                    found.push((key, holds));
                }
            }
        }
        Ok(found)
    }
}
