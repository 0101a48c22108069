//! The installation's own row: written once, checked at every start.

use diesel::prelude::*;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use futures::FutureExt;

use super::columns::Hash;
use super::schema::{cursors, epochs, installation};
use super::{BEGIN, Ledger, LedgerError};
use crate::domain::ids::{PARTITIONS_MAX, Partition, TenantId};

impl Ledger {
    /// Creates the installation's rows, once: its number of partitions (1 to 256), a fingerprint of its secret, and for
    /// each partition an epoch row (0: none issued yet) and a cursor.
    ///
    /// Errors: [`LedgerError::Refused`] when the ledger was installed with other partitions or another secret.
    pub async fn install(&self, partitions: u16, secret_fingerprint: [u8; 32]) -> Result<(), LedgerError> {
        if !(1..=PARTITIONS_MAX).contains(&partitions) {
            return Err(LedgerError::Refused(format!(
                "{partitions} partitions: choose 1 to {PARTITIONS_MAX}"
            )));
        }
        self.transact(BEGIN, move |connection| install(connection, partitions, secret_fingerprint).boxed())
            .await?;
        let _ = self.shared.partitions.set(partitions);
        Ok(())
    }

    /// The installation's number of partitions.
    ///
    /// Errors: [`LedgerError::Refused`] when the ledger was not installed.
    pub async fn partitions(&self) -> Result<u16, LedgerError> {
        if let Some(known) = self.shared.partitions.get() {
            return Ok(*known);
        }
        let stored: Option<i16> = self.first(|| installation::table.select(installation::partitions)).await?;
        let stored = stored.ok_or_else(|| {
            LedgerError::Refused("the ledger is not installed: start the service once".into())
        })?;
        let partitions = u16::try_from(stored).unwrap_or_default();
        Ok(*self.shared.partitions.get_or_init(|| partitions))
    }

    /// The partition that a tenant lives in.
    pub(crate) async fn partition_of(&self, tenant: &TenantId) -> Result<Partition, LedgerError> {
        Ok(Partition::of(tenant, self.partitions().await?))
    }
}

async fn install(
    connection: &mut AsyncPgConnection,
    partitions: u16,
    secret_fingerprint: [u8; 32],
) -> Result<(), LedgerError> {
    let count = i16::try_from(partitions).unwrap_or(i16::MAX);
    let values =
        (installation::partitions.eq(count), installation::secret_fingerprint.eq(&secret_fingerprint));
    let insert = diesel::insert_into(installation::table).values(values).on_conflict_do_nothing();
    insert.execute(connection).await?;
    let read = installation::table.select((installation::partitions, installation::secret_fingerprint));
    let stored: Option<(i16, Hash)> = read.first(connection).await.optional()?;
    let (installed, fingerprint) =
        stored.ok_or_else(|| LedgerError::Damaged("the installation's row is gone".into()))?;
    if installed != count {
        return Err(LedgerError::Refused(format!(
            "this ledger was installed with {installed} partitions, which cannot be changed: configure {installed}, not {partitions}"
        )));
    }
    if fingerprint.0 != secret_fingerprint {
        return Err(LedgerError::Refused(
            "this ledger was installed with another secret: configure the one it was installed with".into(),
        ));
    }
    let rows: Vec<_> = (0..count).map(|partition| cursors::partition.eq(partition)).collect();
    diesel::insert_into(cursors::table).values(rows).on_conflict_do_nothing().execute(connection).await?;
    let first = |partition| (epochs::partition.eq(partition), epochs::epoch.eq(0), epochs::run_id.eq(""));
    let rows: Vec<_> = (0..count).map(first).collect();
    diesel::insert_into(epochs::table).values(rows).on_conflict_do_nothing().execute(connection).await?;
    Ok(())
}
