//! Postgres: its plain inserts, what the writer makes of it, and a year of entries.

use std::time::{Duration, Instant};

use tokio_postgres::{Client, NoTls};
use tollgate::embedded::{EmbeddedPostgres, PostgresOptions};

use super::Options;
use super::calls::{finish, reserve, tenant_of};
use super::cpu;
use super::figures::{Figure, Figures};
use super::over_http::{spread_reserves, warm_up};
use super::service::Service;

const BATCH: i32 = 2_000;
const TABLE: &str = "CREATE TABLE plain (tenant text, operation_id uuid, step integer, line smallint, leg smallint, meter text, \
                     credit text, debit text, amount numeric(28, 9), happened_at timestamptz, \
                     PRIMARY KEY (tenant, operation_id, step, line, leg, happened_at))";
/// Ids ordered by time, as the service makes them.
const INSERT: &str = "INSERT INTO plain SELECT 'tenant-' || (n % 1000), \
                      (lpad(to_hex($1::bigint), 12, '0') || '7000' || '8000' || lpad(to_hex(n), 12, '0'))::uuid, 1, 0, 0, 'page', \
                      'available', 'reserved', 3, now() FROM generate_series(1, $2::integer) n ON CONFLICT DO NOTHING";
const MONTHS: &str =
    "SELECT ensure_entries_month((now() - make_interval(months => n))::date) FROM generate_series(0, 12) n";
/// Spread over a year, the past month included; a chain of their own, as no batch of the writer has them.
const YEAR: &str = "INSERT INTO entries SELECT 'tenant-' || (n % $2::integer), gen_random_uuid(), 1, 0, 0, 'page', \
                    date_trunc('month', at), 'reserved', 'consumed', 3, 'usage', false, false, false, false, at, at, 'reserve', \
                    date_trunc('hour', at), '{}', -1, n \
                    FROM (SELECT n, now() - make_interval(secs => n * 31536000.0 / $1::integer) AS at \
                    FROM generate_series(1, $1::integer) n) AS year";
/// How often the drain's start is looked for.
const LOOK: Duration = Duration::from_millis(5);

/// Measures plain batched inserts into a Postgres of their own.
pub async fn measure_inserts(options: &Options, figures: &mut Figures) {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path().to_owned();
    let started = tokio::task::spawn_blocking(move || EmbeddedPostgres::start(PostgresOptions::new(at)));
    let postgres = started.await.expect("a thread").expect("Postgres starts");
    let client = connect(&postgres.url()).await;
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

/// Measures how fast the writer books what has piled up, with nothing else going on; and reserves while no writer runs.
pub async fn measure_drain(options: &Options, figures: &mut Figures) {
    let mut service = Service::start("http,writer").await;
    // The gate restores no tenant while the writer lags: all are warm before a backlog grows.
    warm_up(&service, options.callers, options.tenants).await;
    service.restart("http");
    let client = connect(&service.embedded().servers().postgres_url).await;
    let jobs = options.events / 2;
    eprintln!("piling up {} events …", jobs * 2);
    pile_up(&service, options.callers, jobs, options.tenants).await;
    service.vacuum().await;
    let (before, rows_before) = (service.cpu(), entries(&client).await);
    service.restart("writer");
    while entries(&client).await == rows_before {
        tokio::time::sleep(LOOK).await;
    }
    let began = Instant::now();
    service.caught_up().await;
    let took = began.elapsed();
    let after = service.cpu();
    // The writer is a process of its own, which began with nothing.
    let total = [after[0], after[1] - before[1], after[2] - before[2]];
    let events = jobs as u64 * 2;
    let rows = u64::try_from(entries(&client).await - rows_before).unwrap();
    figures.add(
        Figure::new("writer: drain of jobs, one line each, events", events, took).costing(total, events),
    );
    figures.add(Figure::new("writer: the same, rows of entries", rows, took));

    service.restart("http");
    warm_up(&service, options.callers, options.tenants).await;
    let name = "service: reserve, 3 limits, no writer";
    figures.add(spread_reserves(&service, name, options.load(), options.tenants).await);
}

async fn pile_up(service: &Service, callers: usize, jobs: usize, tenants: usize) {
    let making = (0..callers).map(|first| async move {
        let mut caller = service.caller();
        for number in (first..jobs).step_by(callers) {
            let id = reserve(&mut caller, &tenant_of(number as u64, tenants)).await;
            finish(&mut caller, &id, "gate").await;
        }
    });
    futures::future::join_all(making).await;
}

/// Puts `rows` entries into the books, spread over the year until now.
pub async fn fill_a_year(service: &Service, rows: i32, tenants: usize) {
    eprintln!("filling a year with {rows} entries …");
    let client = connect(&service.embedded().servers().postgres_url).await;
    client.batch_execute(MONTHS).await.unwrap();
    let tenants = i32::try_from(tenants).expect("a number of tenants");
    client.execute(YEAR, &[&rows, &tenants]).await.unwrap();
    client.batch_execute("ANALYZE entries").await.unwrap();
}

async fn entries(client: &Client) -> i64 {
    client.query_one("SELECT count(*) FROM entries", &[]).await.unwrap().get(0)
}

/// A connection of the bench's own.
pub async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}
