//! One query or one statement, without a transaction to write out.

use diesel_async::methods::{ExecuteDsl, LoadQuery};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use futures::FutureExt;
use futures::future::BoxFuture;

use super::at_work::AtWork;
use super::{BEGIN, Ledger, LedgerError};

impl Ledger {
    /// The rows of one query, read as [`Self::read`] does. `query` builds it for each try.
    pub(crate) fn load<'a, T, Q>(
        &'a self,
        query: impl Fn() -> Q + Send + Sync + 'a,
    ) -> BoxFuture<'a, Result<Vec<T>, LedgerError>>
    where
        T: Send + 'a,
        Q: LoadQuery<'a, AsyncPgConnection, T> + Send + 'a,
    {
        async move {
            match self.load_once(query()).await {
                Err(LedgerError::Unavailable(_)) => self.load_once(query()).await,
                result => result,
            }
        }
        .boxed()
    }

    async fn load_once<'a, T, Q>(&self, query: Q) -> Result<Vec<T>, LedgerError>
    where
        T: Send + 'a,
        Q: LoadQuery<'a, AsyncPgConnection, T> + Send + 'a,
    {
        let free = self.connection().await?;
        let mut at_work = AtWork::default();
        let connection = at_work.begin(free);
        let mut rows = Vec::new();
        // Boxed and without the rows' type: each type would be compiled by itself.
        let load = async {
            rows = query.load(&mut *connection).await?;
            Ok(())
        };
        let done = self.in_time(load.boxed()).await?;
        at_work.end();
        done.map(|()| rows)
    }

    /// The first row of one query, if it has any.
    pub(crate) async fn first<'a, T, Q>(
        &'a self,
        query: impl Fn() -> Q + Send + Sync + 'a,
    ) -> Result<Option<T>, LedgerError>
    where
        T: Send + 'a,
        Q: LoadQuery<'a, AsyncPgConnection, T> + Send + 'a,
    {
        Ok(self.load(query).await?.into_iter().next())
    }

    /// Executes one statement, as [`Self::transact`] does. Returns how many rows it changed.
    pub(crate) async fn execute<Q>(&self, statement: Q) -> Result<usize, LedgerError>
    where
        Q: ExecuteDsl<AsyncPgConnection> + Send + 'static,
    {
        self.transact(BEGIN, |connection| {
            async move { Ok(RunQueryDsl::execute(statement, connection).await?) }.boxed()
        })
        .await
    }
}
