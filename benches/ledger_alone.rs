//! Postgres alone: the insert that the writer books with, in batches of the same size, and nothing else.

use std::time::Instant;

use tollgate::embedded::{EmbeddedPostgres, PostgresOptions};

use super::Options;
use super::cpu;
use super::figures::{Figure, Figures};

const BATCH: i32 = 2_000;
const TABLE: &str = "CREATE TABLE plain (tenant text, operation_id uuid, step integer, line smallint, leg smallint, meter text, \
                     credit text, debit text, amount numeric(28, 9), happened_at timestamptz, \
                     PRIMARY KEY (tenant, operation_id, step, line, leg, happened_at))";
/// Ids ordered by time, as the service makes them.
const INSERT: &str = "INSERT INTO plain SELECT 'tenant-' || (n % 1000), \
                      (lpad(to_hex($1::bigint), 12, '0') || '7000' || '8000' || lpad(to_hex(n), 12, '0'))::uuid, 1, 0, 0, 'page', \
                      'available', 'reserved', 3, now() FROM generate_series(1, $2::integer) n ON CONFLICT DO NOTHING";

/// Measures plain batched inserts.
pub async fn measure(options: &Options, figures: &mut Figures) {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path().to_owned();
    let started = tokio::task::spawn_blocking(move || EmbeddedPostgres::start(PostgresOptions::new(at)));
    let postgres = started.await.expect("a thread").expect("Postgres starts");
    let (client, connection) = tokio_postgres::connect(&postgres.url(), tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    client.batch_execute(TABLE).await.unwrap();
    let insert = client.prepare(INSERT).await.unwrap();
    let (before, began, mut batches) = (cpu::of_tree(postgres.id()), Instant::now(), 0_i64);
    while began.elapsed() < options.duration() {
        client.execute(&insert, &[&batches, &BATCH]).await.unwrap();
        batches += 1;
    }
    let rows = u64::try_from(batches).unwrap() * u64::try_from(BATCH).unwrap();
    let cost = cpu::of_tree(postgres.id()) - before;
    let figure = Figure::new("ledger alone: plain batched insert, rows", rows, began.elapsed());
    figures.add(figure.costing([0, 0, cost], rows));
    tokio::task::spawn_blocking(move || drop(postgres)).await.unwrap();
}
