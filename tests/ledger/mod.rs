//! The ledger on a real Postgres: schema, queries, constraints, proof.

mod batches;
pub mod events;
mod given_up;
mod kept_plans;
mod key_filters;
mod large_tables;
mod migrations;
mod parking;
mod policy;
mod proof;
mod reads;
mod restore;
mod schema;
mod statements;

use std::time::Duration;

use tollgate::ledger::{Ledger, LedgerOptions};

use crate::support::services::{Template, TestDatabase, empty_database};

/// A migrated database of its own, installed with four partitions.
pub async fn ledger() -> (TestDatabase, Ledger) {
    static TEMPLATE: Template = Template::new("ledger_template");
    let database = TEMPLATE
        .database(async |url| {
            Ledger::migrate(&url).await.unwrap();
        })
        .await;
    let ledger = Ledger::connect(options(&database)).await.unwrap();
    ledger.install(events::PARTITIONS, [7; 32]).await.unwrap();
    for row in ledger.epochs().await.unwrap() {
        ledger.raise_epochs(&[(row.partition, row.epoch, row.epoch)], "node-1").await.unwrap();
    }
    (database, ledger)
}

/// A database without any table.
pub async fn bare() -> TestDatabase {
    empty_database().await
}

/// How the tests reach a database: as the service, which may not edit the books.
pub fn options(database: &TestDatabase) -> LedgerOptions {
    LedgerOptions {
        url: database.url.clone(),
        pool_size: 4,
        checkout_timeout: Duration::from_secs(20),
        connect_timeout: Duration::from_secs(20),
        statement_timeout: Duration::from_secs(20),
        role: Some("tollgate_service".into()),
        idempotency_horizon: Duration::from_secs(35 * 86_400),
        // Work of these tests comes months after its period, which nobody closes.
        close_grace: Duration::from_secs(100 * 365 * 86_400),
    }
}

/// Runs statements as the database's owner.
pub async fn as_owner(database: &TestDatabase, statements: &str) -> Result<(), tokio_postgres::Error> {
    let (client, connection) = tokio_postgres::connect(&database.url, tokio_postgres::NoTls).await.unwrap();
    let connection = tokio::spawn(connection);
    let result = client.batch_execute(statements).await;
    drop(client);
    connection.await.unwrap().unwrap();
    result
}

/// One text per row: the columns joined by spaces.
pub async fn rows(database: &TestDatabase, query: &str) -> Vec<String> {
    rows_at(&database.url, query).await
}

/// As [`rows`], of the database with this URL.
pub async fn rows_at(url: &str, query: &str) -> Vec<String> {
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.unwrap();
    let connection = tokio::spawn(connection);
    let query = format!(
        "SELECT concat_ws(' ', VARIADIC ARRAY(SELECT value FROM json_each_text(row_to_json(q)))) FROM ({query}) q"
    );
    let rows = client.query(&query, &[]).await.unwrap();
    drop(client);
    connection.await.unwrap().unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}
