//! The close of a month: how long it takes for many tenants, and what callers notice of it.

use std::time::{Duration, Instant};

use tokio_postgres::Client;
use tollgate::domain::ids::{Partition, TenantId};

use super::Options;
use super::books::connect;
use super::calls::{reserve, tenant_of};
use super::figures::{Figure, Figures};
use super::load::{self, Caller};
use super::over_http::{spread_reserves, warm_up};
use super::service::{KEY, Service};

const PARTITIONS: u16 = 64;
/// The load while periods close, as a part of the most that is reached without.
const PART_OF_PEAK: f64 = 0.3;
/// How often it is looked whether the job has ended.
const LOOK: Duration = Duration::from_millis(50);
/// What rolls over of each period: fifteen of what is included, and ten with a grant that goes on.
const ROLLED: i64 = 25;

const TENANTS: &str = "INSERT INTO tenants (id, partition, version, definition, archived, counter_resets) \
    SELECT m.tenant, m.partition, t.version, t.definition || jsonb_build_object('id', m.tenant), false, t.counter_resets \
    FROM unnest($1::text[], $2::smallint[]) AS m(tenant, partition), tenants t WHERE t.id = 'rolls'";
const CALENDARS: &str = "INSERT INTO calendars (tenant, from_at, zone, anchor_day, first_period_end) \
    SELECT m.tenant, c.from_at, c.zone, c.anchor_day, c.first_period_end \
    FROM unnest($1::text[]) AS m(tenant), calendars c WHERE c.tenant = 'rolls'";
/// Last month, in which each tenant had 50 pages and two grants of 10, and used 30.
const LAST_MONTH: &str = "BEGIN; \
    CREATE TEMPORARY TABLE ended ON COMMIT DROP AS \
    SELECT id AS tenant, s AT TIME ZONE 'UTC' AS start, (s + interval '1 month') AT TIME ZONE 'UTC' AS until \
    FROM tenants, (SELECT date_trunc('month', now() AT TIME ZONE 'UTC') - interval '1 month' AS s) AS month WHERE id LIKE 'tenant-%'; \
    INSERT INTO quota_periods (tenant, meter, period_start, period_end, decimals, included, version, max_rollover) \
    SELECT tenant, 'page', start, until, 0, 50, 1, 15 FROM ended; \
    INSERT INTO balances (tenant, meter, period_start, period_end, granted, consumed, available) \
    SELECT tenant, 'page', start, until, 70, 30, 40 FROM ended; \
    INSERT INTO grants (tenant, id, meter, decimals, amount, kind, priority, effective_at, expires_at, reason, fingerprint, \
        created_at, created_by, period_start, goes_on) \
    SELECT tenant, gen_random_uuid(), 'page', 0, 10, 'promotional', 40 + 20 * g, start + interval '1 day', \
        until + g * interval '1 year', '', decode(repeat('00', 32), 'hex'), now(), 'bench', start, g = 1 \
    FROM ended, generate_series(0, 1) g; \
    INSERT INTO cuts (tenant, grant_id, is_end, meter, period_start, epoch, sequence, consumed, is_settled) \
    SELECT tenant, id, false, meter, period_start, 1, 1, 0, false FROM grants WHERE tenant LIKE 'tenant-%'; \
    COMMIT; ANALYZE";
const IS_AT_REST: &str = "SELECT rings = served AND NOT EXISTS (SELECT FROM job_runs WHERE job = 'close' AND finished_at IS NULL) \
    FROM jobs WHERE name = 'close'";
const RESULT: &str = "SELECT count(*), coalesce(sum(rolled), 0)::bigint, (SELECT count(*) FROM untold_capacities) FROM period_closures";

/// Measures how long a month of many tenants takes to be closed, and calls meanwhile.
pub async fn measure(options: &Options, figures: &mut Figures) {
    let service = Service::start("http,writer,jobs").await;
    let books = connect(&service.embedded().servers().postgres_url).await;
    make_tenants(&books, options.closing).await;
    // Each of them has called this month.
    warm_up(&service, options.callers, options.closing).await;
    let tenants = options.tenants.min(options.closing);
    let name = "close: reserve, 3 limits, quota, the most at once";
    let peak = spread_reserves(&service, name, options.load(), tenants).await;
    let a_second = peak.rate * PART_OF_PEAK;
    figures.add(peak);

    let at_rate = async |name: &str, over: &mut (dyn Future<Output = ()> + Unpin)| {
        let work = move |mut caller: Caller, turn| async move {
            reserve(&mut caller, &tenant_of(turn, tenants)).await;
            caller
        };
        let done = load::run_at(&service.host, KEY, options.callers, a_second, over, work).await;
        Figure::new(name, done.count, done.took).timed(&done.times)
    };
    service.vacuum().await;
    let quiet = &mut Box::pin(tokio::time::sleep(options.duration()));
    figures.add(at_rate("close: reserve at 30 % of that, quiet", quiet).await);

    books.batch_execute(LAST_MONTH).await.expect("a month of each tenant");
    service.vacuum().await;
    let began = Instant::now();
    let mut took = Duration::ZERO;
    let mut closing = Box::pin(async {
        close(&service, &books).await;
        took = began.elapsed();
    });
    let meanwhile = at_rate("close: reserve at 30 % of that, while periods close", &mut closing).await;
    drop(closing);
    figures.add(meanwhile);
    let closed = options.closing as u64;
    figures.add(Figure::new("close: periods with two grants, closed and rolled over", closed, took));
    let row = books.query_one(RESULT, &[]).await.unwrap();
    let result: [i64; 3] = [0, 1, 2].map(|column| row.get(column));
    let closed = i64::try_from(closed).unwrap();
    assert_eq!(result, [closed, closed * ROLLED, 0], "closed, rolled over and known to the gate");
}

/// Tenants with a quota that rolls over, as rows.
async fn make_tenants(books: &Client, count: usize) {
    let names: Vec<String> = (0..count).map(|number| format!("tenant-{number}")).collect();
    let partition = |name: &String| {
        let tenant = TenantId::parse(name).expect("a tenant's id");
        i16::try_from(Partition::of(&tenant, PARTITIONS).number()).expect("a partition")
    };
    let partitions: Vec<i16> = names.iter().map(partition).collect();
    books.execute(TENANTS, &[&names, &partitions]).await.expect("tenants");
    books.execute(CALENDARS, &[&names]).await.expect("calendars");
}

/// Asks for the job, and waits for its end.
async fn close(service: &Service, books: &Client) {
    service.caller().must("POST", "/v1/admin/jobs/close/runs", "{}", &[202]).await;
    while !books.query_one(IS_AT_REST, &[]).await.unwrap().get::<_, bool>(0) {
        tokio::time::sleep(LOOK).await;
    }
}
