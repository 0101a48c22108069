//! Leases: who does a piece of work for now. They only avoid wasted work; correctness never rests on them.

use std::time::Duration;

use diesel::sql_types::{Array, BigInt, Bool, Text};
use diesel::{QueryableByName, sql_query};
use diesel_async::RunQueryDsl;
use futures::FutureExt;

use super::{BEGIN, Ledger, LedgerError};

#[derive(QueryableByName)]
struct HeldRow {
    #[diesel(sql_type = Bool)]
    held: bool,
}

#[derive(QueryableByName)]
struct Row {
    #[diesel(sql_type = Text)]
    name: String,
}

impl Ledger {
    /// Takes or renews the leases of these names that are free, ended or already `owner`'s, for `duration` by the
    /// database's clock. Returns the names held now.
    pub async fn take_leases(
        &self,
        names: &[String],
        owner: &str,
        duration: Duration,
    ) -> Result<Vec<String>, LedgerError> {
        let (mut names, owner) = (names.to_vec(), owner.to_owned());
        // In one order, so that two takers never wait for each other.
        names.sort_unstable();
        let duration_ms = i64::try_from(duration.as_millis()).unwrap_or(i64::MAX);
        self.transact(BEGIN, move |connection| {
            async move {
                let rows: Vec<Row> = sql_query(
                    "INSERT INTO leases AS l (name, owner, fence, expires_at) \
                     SELECT name, $2, 1, clock_timestamp() + $3 * interval '1 millisecond' FROM unnest($1::text[]) AS n(name) \
                     ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, expires_at = excluded.expires_at, \
                         fence = l.fence + (l.owner <> excluded.owner)::integer \
                     WHERE l.owner = excluded.owner OR l.expires_at <= clock_timestamp() RETURNING l.name",
                )
                .bind::<Array<Text>, _>(names)
                .bind::<Text, _>(owner)
                .bind::<BigInt, _>(duration_ms)
                .load(connection)
                .await?;
                Ok(rows.into_iter().map(|row| row.name).collect())
            }
            .boxed()
        })
        .await
    }

    /// Whether anybody holds a lease whose name begins with `prefix`.
    pub async fn is_leased(&self, prefix: &str) -> Result<bool, LedgerError> {
        let query = "SELECT EXISTS (SELECT FROM leases WHERE starts_with(name, $1) AND expires_at > clock_timestamp()) AS held";
        let row = self
            .read(|connection| {
                let query = sql_query(query).bind::<Text, _>(prefix.to_owned());
                async move { Ok(query.get_result::<HeldRow>(connection).await?) }.boxed()
            })
            .await?;
        Ok(row.held)
    }

    /// Gives back every lease of `owner`.
    pub async fn give_back_leases(&self, owner: &str) -> Result<(), LedgerError> {
        let owner = owner.to_owned();
        self.transact(BEGIN, move |connection| {
            async move {
                sql_query("UPDATE leases SET expires_at = clock_timestamp() WHERE owner = $1")
                    .bind::<Text, _>(owner)
                    .execute(connection)
                    .await?;
                Ok(())
            }
            .boxed()
        })
        .await
    }
}
