//! The installation's own row: fixed when it is made, checked at every start.

use diesel::sql_types::{Binary, Integer, SmallInt};
use diesel::{QueryableByName, sql_query};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use futures::FutureExt;

use super::{BEGIN, Ledger, LedgerError};
use crate::domain::ids::{PARTITIONS_MAX, Partition, TenantId};

#[derive(QueryableByName)]
struct InstallationRow {
    #[diesel(sql_type = SmallInt)]
    partitions: i16,
    #[diesel(sql_type = Binary)]
    secret_fingerprint: Vec<u8>,
}

impl Ledger {
    /// Makes the installation's rows once: its number of partitions (1 to 256), a fingerprint of its secret, an epoch
    /// row (0: none issued yet) and a cursor for each partition.
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
        let row = self.read(|connection| read(connection).boxed()).await?;
        let row = row.ok_or_else(|| {
            LedgerError::Refused("the ledger is not installed: start the service once".into())
        })?;
        let partitions = u16::try_from(row.partitions).unwrap_or_default();
        Ok(*self.shared.partitions.get_or_init(|| partitions))
    }

    /// The partition that a tenant lives in.
    pub(crate) async fn partition_of(&self, tenant: &TenantId) -> Result<Partition, LedgerError> {
        Ok(Partition::of(tenant, self.partitions().await?))
    }
}

async fn read(connection: &mut AsyncPgConnection) -> Result<Option<InstallationRow>, LedgerError> {
    let rows: Vec<InstallationRow> =
        sql_query("SELECT partitions, secret_fingerprint FROM installation").load(connection).await?;
    Ok(rows.into_iter().next())
}

async fn install(
    connection: &mut AsyncPgConnection,
    partitions: u16,
    secret_fingerprint: [u8; 32],
) -> Result<(), LedgerError> {
    let count = i16::try_from(partitions).unwrap_or(i16::MAX);
    sql_query(
        "INSERT INTO installation (partitions, secret_fingerprint) VALUES ($1, $2) ON CONFLICT DO NOTHING",
    )
    .bind::<SmallInt, _>(count)
    .bind::<Binary, _>(secret_fingerprint.as_slice())
    .execute(connection)
    .await?;
    let row = read(connection)
        .await?
        .ok_or_else(|| LedgerError::Damaged("the installation's row is gone".into()))?;
    if row.partitions != count {
        return Err(LedgerError::Refused(format!(
            "this ledger was installed with {} partitions, which cannot be changed: configure {0}, not {partitions}",
            row.partitions
        )));
    }
    if row.secret_fingerprint != secret_fingerprint {
        return Err(LedgerError::Refused(
            "this ledger was installed with another secret: configure the one it was installed with".into(),
        ));
    }
    for rows in [
        "INSERT INTO cursors (partition) SELECT generate_series(0, $1 - 1) ON CONFLICT DO NOTHING",
        "INSERT INTO epochs (partition, epoch, run_id) SELECT generate_series(0, $1 - 1), 0, '' ON CONFLICT DO NOTHING",
    ] {
        sql_query(rows).bind::<Integer, _>(i32::from(partitions)).execute(connection).await?;
    }
    Ok(())
}
