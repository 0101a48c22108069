//! Forgetting a subject, whose name was erased: its counters go.

use redis::Value;

use super::Gate;
use super::call::text;
use super::error::GateError;
use crate::domain::codec::Undecodable;
use crate::domain::ids::{Partition, TenantId};
use crate::domain::reservation::{CounterField, SubjectHash};

impl Gate {
    /// Drops a subject's counters, with their logs and what limits remember of its refused calls. A script that meets
    /// the subject later asks the ledger for it, as after a loss.
    pub async fn forget_subject(
        &self,
        partition: Partition,
        tenant: &TenantId,
        subject: SubjectHash,
    ) -> Result<(), GateError> {
        let hashes = [
            self.keys.subject(partition, tenant, subject),
            self.keys.light(partition, tenant, Some(subject)),
        ];
        let mut drop_all = redis::cmd("UNLINK");
        for key in &hashes {
            drop_all.arg(key);
            let Value::Array(names) = self.plain(redis::cmd("HKEYS").arg(key)).await? else {
                return Err(Undecodable("the fields of a subject").into());
            };
            for name in &names {
                if let Ok(field) = text(name)?.as_bytes().try_into() {
                    drop_all.arg(self.keys.log(partition, tenant, Some(subject), CounterField(field)));
                }
            }
        }
        self.plain(&drop_all).await?;
        Ok(())
    }
}
