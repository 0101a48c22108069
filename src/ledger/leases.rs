//! Leases: who does a piece of work for now. They only avoid double work; correctness never depends on them.

use std::time::Duration;

use chrono::DateTime;
use diesel::dsl::{exists, select};
use diesel::prelude::*;
use diesel::sql_types::{Array, Interval, Text};
use diesel_async::RunQueryDsl;
use futures::FutureExt;

use super::functions::{clock_timestamp, interval, starts_with};
use super::prepared::sql_query;
use super::schema::leases;
use super::{BEGIN, Ledger, LedgerError};

#[derive(QueryableByName)]
#[diesel(table_name = leases)]
struct Taken {
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
        self.transact(BEGIN, move |connection| {
            async move {
                let taken: Vec<Taken> = sql_query(include_str!("sql/take_leases.sql"))
                    .bind::<Array<Text>, _>(names)
                    .bind::<Text, _>(owner)
                    .bind::<Interval, _>(interval(duration))
                    .load(connection)
                    .await?;
                Ok(taken.into_iter().map(|lease| lease.name).collect())
            }
            .boxed()
        })
        .await
    }

    /// Whether anybody holds a lease whose name begins with `prefix`.
    pub async fn is_leased(&self, prefix: &str) -> Result<bool, LedgerError> {
        let held = || {
            let named = leases::table.filter(starts_with(leases::name, prefix));
            select(exists(named.filter(leases::expires_at.gt(clock_timestamp()))))
        };
        Ok(self.first(held).await?.unwrap_or(false))
    }

    /// Gives back every lease of `owner`.
    pub async fn give_back_leases(&self, owner: &str) -> Result<(), LedgerError> {
        let owned = leases::table.filter(leases::owner.eq(owner.to_owned()));
        // Not the present time: after the clock was set back, that would still be to come.
        let ended = diesel::update(owned).set(leases::expires_at.eq(DateTime::UNIX_EPOCH));
        self.execute(ended).await.map(drop)
    }
}
