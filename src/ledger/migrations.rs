//! The schema's steps, built into the binary.

use std::collections::BTreeSet;

use diesel::migration::MigrationSource;
use diesel::pg::Pg;
use diesel::sql_types::{Bool, Text};
use diesel::{QueryableByName, sql_query};
use diesel_async::{AsyncMigrationHarness, AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};
use diesel_migrations::{EmbeddedMigrations, MigrationHarness, embed_migrations};
use futures::FutureExt;

use super::{Ledger, LedgerError};

const MIGRATIONS: EmbeddedMigrations = embed_migrations!("migrations");
/// Bounds the wait for a lock: a migration that waits for a long transaction holds up every later query.
const LOCK_TIMEOUT: &str = "SET lock_timeout = '5s'";
/// The advisory lock under which schemas change, one instance at a time.
const LOCK: i64 = 0x746f_6c6c_6761;

/// What a migration did.
#[derive(Debug, Clone, Default)]
pub struct Migrated {
    /// The names of the migrations that ran, in order.
    pub applied: Vec<String>,
    /// The roles of the service that the server still does not have.
    pub missing_roles: Vec<String>,
}

impl Migrated {
    /// Which roles are missing, and what that means.
    pub fn warning(&self) -> Option<String> {
        let names = self.missing_roles.join(" and ");
        (!names.is_empty()).then(|| {
            format!(
                "Postgres lacks the role {names}, and this user may not create roles: `postgres.role` cannot be set, \
                and the service works with all the rights of its user"
            )
        })
    }

    /// The statements that make them, and what to do then.
    pub fn remedy(&self) -> String {
        let make = |role: &String| format!("CREATE ROLE {role} NOLOGIN;");
        let statements: Vec<_> = self.missing_roles.iter().map(make).collect();
        format!(
            "have a user who may create roles run `{}`, and then migrate again: that gives the roles their rights",
            statements.join(" ")
        )
    }
}

impl Ledger {
    /// Applies the missing migrations, and gives the service's roles the rights that they lack; only one instance does
    /// so at a time. The user of `url` must be allowed to create tables. Needs a multi-thread runtime.
    pub async fn migrate(url: &str) -> Result<Migrated, LedgerError> {
        let migrating = locked(url, |harness| names(harness.run_pending_migrations(MIGRATIONS)));
        let (applied, mut connection) = migrating.await?;
        make_roles(&mut connection).await?;
        give_rights(&mut connection).await?;
        let missing_roles = missing_roles(&mut connection).await?;
        Ok(Migrated { applied, missing_roles })
    }

    /// The names of the migrations not applied yet, in order. It only reads, so that a role that owns no table may ask.
    pub async fn pending_migrations(&self) -> Result<Vec<String>, LedgerError> {
        let applied = self.read(|connection| applied_versions(connection).boxed()).await?;
        let all = MigrationSource::<Pg>::migrations(&MIGRATIONS).map_err(refused)?;
        let missing = all.iter().map(|migration| migration.name());
        let missing = missing.filter(|name| !applied.contains(&name.version().to_string()));
        let mut names: Vec<_> = missing.map(ToString::to_string).collect();
        names.sort();
        Ok(names)
    }

    /// Reverts every migration, the last first: all data is lost. For tests.
    pub async fn revert_migrations(url: &str) -> Result<Vec<String>, LedgerError> {
        let (reverted, _) = locked(url, |harness| names(harness.revert_all_migrations(MIGRATIONS))).await?;
        Ok(reverted)
    }

    /// The names of all migrations, in order.
    pub fn migrations() -> Result<Vec<String>, LedgerError> {
        let all = MigrationSource::<Pg>::migrations(&MIGRATIONS).map_err(refused)?;
        let mut names: Vec<_> = all.iter().map(|migration| migration.name().to_string()).collect();
        names.sort();
        Ok(names)
    }
}

#[derive(QueryableByName)]
struct Kept {
    #[diesel(sql_type = Bool)]
    kept: bool,
}

#[derive(QueryableByName)]
struct Applied {
    #[diesel(sql_type = Text)]
    version: String,
}

async fn applied_versions(connection: &mut AsyncPgConnection) -> Result<BTreeSet<String>, LedgerError> {
    let kept: Kept = sql_query(include_str!("sql/migrations_are_kept.sql")).get_result(connection).await?;
    if !kept.kept {
        return Ok(BTreeSet::new());
    }
    let query = sql_query(include_str!("sql/applied_migrations.sql"));
    let rows: Vec<Applied> = query.load(connection).await?;
    Ok(rows.into_iter().map(|row| row.version).collect())
}

#[derive(QueryableByName)]
struct Role {
    #[diesel(sql_type = Text)]
    role: String,
}

#[derive(QueryableByName)]
struct Right {
    #[diesel(sql_type = Text)]
    statement: String,
}

async fn missing_roles(connection: &mut AsyncPgConnection) -> Result<Vec<String>, LedgerError> {
    let rows: Vec<Role> = sql_query(include_str!("sql/missing_roles.sql")).load(connection).await?;
    Ok(rows.into_iter().map(|row| row.role).collect())
}

/// Makes the roles that are missing where the user may: it may not have been allowed to when the migrations ran.
async fn make_roles(connection: &mut AsyncPgConnection) -> Result<(), LedgerError> {
    for role in missing_roles(connection).await? {
        // Without the right to do so, or made by another database's migration just now: neither is a failure.
        if let Err(error) = connection.batch_execute(&format!("CREATE ROLE {role} NOLOGIN")).await {
            tracing::debug!(role, %error, "a role was not made");
        }
    }
    Ok(())
}

/// Gives the roles what they lack, so that one made after the migrations ran has its rights too.
async fn give_rights(connection: &mut AsyncPgConnection) -> Result<(), LedgerError> {
    let lacking: Vec<Right> = sql_query(include_str!("sql/missing_rights.sql")).load(connection).await?;
    for Right { statement } in lacking {
        let given = connection.batch_execute(&statement).await;
        given.map_err(|error| LedgerError::Refused(format!("`{statement}` failed: {error}")))?;
    }
    Ok(())
}

type Harness = AsyncMigrationHarness<AsyncPgConnection>;

async fn connected(url: &str) -> Result<AsyncPgConnection, LedgerError> {
    <AsyncPgConnection as diesel_async::AsyncConnection>::establish(url)
        .await
        .map_err(|error| LedgerError::Unavailable(error.to_string()))
}

/// Does work under the lock, and returns the connection that holds it until it ends, also after an error.
async fn locked<T>(
    url: &str,
    work: impl FnOnce(&mut Harness) -> Result<T, LedgerError> + Send + 'static,
) -> Result<(T, AsyncPgConnection), LedgerError>
where
    T: Send + 'static,
{
    let url = url.to_owned();
    let task = tokio::spawn(async move {
        let mut connection = connected(&url).await?;
        connection.batch_execute(&format!("SELECT pg_advisory_lock({LOCK})")).await?;
        connection.batch_execute(LOCK_TIMEOUT).await?;
        let mut harness = Harness::new(connection);
        let done = work(&mut harness)?;
        Ok::<_, LedgerError>((done, harness.into_inner()))
    });
    task.await.map_err(|error| LedgerError::Unavailable(error.to_string()))?
}

fn names(
    applied: diesel::migration::Result<Vec<diesel::migration::MigrationVersion<'_>>>,
) -> Result<Vec<String>, LedgerError> {
    Ok(applied.map_err(refused)?.iter().map(ToString::to_string).collect())
}

fn refused(error: Box<dyn std::error::Error + Send + Sync>) -> LedgerError {
    let error = error.to_string();
    let hint = match error.contains("lock timeout") {
        true => {
            "; a dump, `tollgate verify` or another long transaction has a table that is to be changed: migrate again once it has ended"
        }
        false => "",
    };
    LedgerError::Refused(format!("the schema cannot be changed: {error}{hint}"))
}
