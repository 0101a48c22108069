//! The private servers: they come up anywhere, keep their data, and never outlive the process that started them.

use std::{
    fs,
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::Path,
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::{Duration, Instant},
};

use secrecy::ExposeSecret;
use tokio_postgres::NoTls;
use tollgate::embedded::{
    Appendfsync, Embedded, EmbeddedError, EmbeddedPostgres, EmbeddedRedis, PostgresOptions, RedisOptions,
};

use tollgate::settings::{Inputs, Settings};

use crate::support::{
    services,
    wait::{wait_blocking_for, wait_for},
};

const PATIENCE: Duration = Duration::from_secs(20);
const KILLED_PARENT: &str = "TOLLGATE_TEST_KILLED_PARENT";

#[test]
fn both_servers_start_and_answer_and_stop() {
    let directory = services::directory();
    let embedded = Embedded::start(directory.path()).unwrap();
    assert!(embedded.is_owner());
    assert_eq!(ping(&embedded.servers().redis_url), "PONG");
    assert_eq!(query(&embedded.servers().postgres_url, "SELECT current_database()"), "tollgate");
    assert_eq!(Embedded::running(directory.path()).unwrap().as_ref(), Some(embedded.servers()));
    let settings = settings_of(&embedded);
    assert_eq!(ping(settings.redis.url.expose_secret()), "PONG");
    embedded.stop().unwrap();
    assert_eq!(working_in(directory.path()), Vec::<i32>::new());
    assert_eq!(Embedded::running(directory.path()).unwrap(), None);
}

#[test]
fn redis_refuses_to_forget_and_postgres_to_skip_the_disk() {
    let directory = services::directory();
    let embedded = Embedded::start(directory.path()).unwrap();
    let url = &embedded.servers().redis_url;
    for (name, value) in
        [("appendonly", "yes"), ("appendfsync", "everysec"), ("maxmemory-policy", "noeviction"), ("save", "")]
    {
        let found: Vec<String> = redis::cmd("CONFIG").arg("GET").arg(name).query(&mut connect(url)).unwrap();
        assert_eq!(found, [name, value]);
    }
    for (name, value) in [("fsync", "on"), ("synchronous_commit", "on"), ("listen_addresses", "")] {
        assert_eq!(query(&embedded.servers().postgres_url, &format!("SHOW {name}")), value);
    }
}

#[test]
fn a_second_start_on_a_used_directory_is_refused_but_may_attach() {
    let directory = services::directory();
    let first = Embedded::start(directory.path()).unwrap();
    let refused = Embedded::start(directory.path()).unwrap_err();
    assert!(matches!(refused, EmbeddedError::InUse(_)), "{refused}");
    let attached = Embedded::attach_or_start(directory.path()).unwrap();
    assert!(!attached.is_owner());
    assert_eq!(attached.servers(), first.servers());
    assert_eq!(attached.secret().expose_secret(), first.secret().expose_secret());
    attached.stop().unwrap();
    assert_eq!(ping(&first.servers().redis_url), "PONG");
}

#[test]
fn data_and_secret_are_kept_over_restarts() {
    let directory = services::directory();
    let embedded = Embedded::start(directory.path()).unwrap();
    let secret = embedded.secret().expose_secret().to_owned();
    set(&embedded.servers().redis_url, "kept", "in Redis");
    query(&embedded.servers().postgres_url, "CREATE TABLE kept AS SELECT 'in Postgres'::text AS place");
    embedded.stop().unwrap();

    let started = Instant::now();
    let embedded = Embedded::attach_or_start(directory.path()).unwrap();
    assert!(started.elapsed() < Duration::from_secs(60), "took {:?}", started.elapsed());
    assert!(embedded.is_owner());
    assert_eq!(embedded.secret().expose_secret(), secret);
    assert_eq!(get(&embedded.servers().redis_url, "kept"), "in Redis");
    assert_eq!(query(&embedded.servers().postgres_url, "SELECT place FROM kept"), "in Postgres");
}

#[test]
fn a_long_data_directory_and_one_with_odd_letters_work() {
    let directory = services::directory();
    let long = directory.path().join("long ".repeat(24)).join("ü, \"quoted\" %41");
    let embedded = Embedded::start(&long).unwrap();
    assert_eq!(ping(&embedded.servers().redis_url), "PONG");
    assert_eq!(query(&embedded.servers().postgres_url, "SELECT 'reached'"), "reached");
    let sockets = embedded.servers().postgres_socket_directory.clone();
    embedded.stop().unwrap();
    assert!(!sockets.exists(), "a socket directory outside the data directory is removed");

    let odd = directory.path().join("ü, \"q\" %41");
    let embedded = Embedded::start(&odd).unwrap();
    assert_eq!(ping(&embedded.servers().redis_url), "PONG");
    assert_eq!(query(&embedded.servers().postgres_url, "SELECT 'reached'"), "reached");
}

#[test]
fn a_data_directory_below_one_that_is_closed_to_others_works() {
    let directory = services::directory();
    let closed = directory.path().join("closed");
    fs::create_dir(&closed).unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).unwrap();
    let embedded = Embedded::start(&closed.join("data")).unwrap();
    assert_eq!(query(&embedded.servers().postgres_url, "SELECT 'reached'"), "reached");
    assert_eq!(fs::metadata(&closed).unwrap().permissions().mode() & 0o777, 0o700);
}

#[test]
fn no_server_outlives_a_parent_that_is_killed() {
    let directory = services::directory();
    let mut parent = start_in_a_process_of_its_own(directory.path());
    let servers = wait_blocking_for("the servers are announced", PATIENCE, || {
        Embedded::running(directory.path()).unwrap()
    });
    assert_ne!(servers.started_by, std::process::id());
    assert_eq!(ping(&servers.redis_url), "PONG");
    assert!(working_in(directory.path()).len() > 2, "Redis, Postgres and its children");
    parent.kill().unwrap();
    parent.wait().unwrap();
    wait_blocking_for("every server has ended", Duration::from_secs(60), || {
        working_in(directory.path()).is_empty().then_some(())
    });
    let again = Embedded::start(directory.path()).unwrap();
    assert_eq!(ping(&again.servers().redis_url), "PONG");
    assert_eq!(query(&again.servers().postgres_url, "SELECT 'recovered'"), "recovered");
}

/// Not a test of its own: the process that `no_server_outlives_a_parent_that_is_killed` kills.
#[test]
#[ignore = "run in a process of its own by another test"]
#[allow(clippy::disallowed_methods, reason = "the other test names the directory in the environment")]
fn a_parent_that_waits_to_be_killed() {
    let Some(directory) = std::env::var_os(KILLED_PARENT) else { return };
    let _embedded = Embedded::start(Path::new(&directory)).unwrap();
    loop {
        thread::park();
    }
}

#[test]
fn servers_outlive_the_thread_that_started_them() {
    let directory = services::directory();
    let options = RedisOptions::new(directory.path());
    let redis = thread::spawn(move || EmbeddedRedis::start(options).unwrap()).join().unwrap();
    assert_eq!(ping(&redis.url()), "PONG");
    // The parent-death signal of an ended thread would have been delivered before this answer.
    assert_eq!(ping(&redis.url()), "PONG");
}

#[test]
fn what_an_earlier_run_left_is_ended_by_the_next_start() {
    let directory = services::directory();
    let (redis, postgres) = (directory.path().join("redis"), directory.path().join("postgres"));
    let left = EmbeddedRedis::start(RedisOptions::new(&redis)).unwrap();
    let left_id = left.id();
    std::mem::forget(left);
    let next = EmbeddedRedis::start(RedisOptions::new(&redis)).unwrap();
    assert_eq!(working_in(&redis), [i32::try_from(next.id()).unwrap()]);
    assert_ne!(next.id(), left_id);

    let left = EmbeddedPostgres::start(postgres_options(&postgres)).unwrap();
    let left_id = i32::try_from(left.id()).unwrap();
    left.pause().unwrap();
    std::mem::forget(left);
    let next = EmbeddedPostgres::start(postgres_options(&postgres)).unwrap();
    assert_eq!(query(&next.url(), "SELECT 'the next one'"), "the next one");
    assert!(!working_in(&postgres).contains(&left_id));
}

#[test]
fn a_stale_pid_file_that_names_a_stranger_harms_nobody() {
    let directory = services::directory();
    let mut postgres = EmbeddedPostgres::start(postgres_options(directory.path())).unwrap();
    postgres.stop().unwrap();
    let mut stranger = Command::new("sleep").arg("600").process_group(0).spawn().unwrap();
    fs::write(directory.path().join("data/postmaster.pid"), format!("{}\n", stranger.id())).unwrap();
    postgres.restart().unwrap();
    assert_eq!(query(&postgres.url(), "SELECT 'started'"), "started");
    assert!(stranger.try_wait().unwrap().is_none(), "the stranger lives");
    stranger.kill().unwrap();
    stranger.wait().unwrap();
}

#[test]
fn a_killed_redis_keeps_what_it_forced_to_disk() {
    let mut redis = services::redis_with(|options| options.appendfsync = Appendfsync::Always);
    set(&redis.url(), "kept", "yes");
    redis.kill9().unwrap();
    assert!(redis::Client::open(redis.url()).unwrap().get_connection().is_err());
    redis.restart().unwrap();
    assert_eq!(get(&redis.url(), "kept"), "yes");
}

#[test]
fn a_killed_postgres_recovers_with_what_was_committed() {
    let directory = services::directory();
    let mut postgres = EmbeddedPostgres::start(PostgresOptions::new(directory.path())).unwrap();
    query(&postgres.url(), "CREATE TABLE kept AS SELECT 'yes'::text AS kept");
    postgres.kill9().unwrap();
    assert_eq!(working_in(directory.path()), Vec::<i32>::new());
    postgres.restart().unwrap();
    assert_eq!(query(&postgres.url(), "SELECT kept FROM kept"), "yes");
}

#[test]
fn a_paused_server_answers_nothing_until_it_is_resumed() {
    let redis = services::redis();
    let mut connection = connect(&redis.url());
    connection.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    redis.pause().unwrap();
    assert!(redis::cmd("PING").query::<String>(&mut connection).is_err());
    redis.resume().unwrap();
    assert_eq!(ping(&redis.url()), "PONG");
}

#[test]
fn a_redis_in_cluster_mode_serves_every_slot_also_after_a_restart() {
    let mut redis = services::redis_cluster();
    for _ in 0..2 {
        let state: String = redis::cmd("CLUSTER").arg("INFO").query(&mut connect(&redis.url())).unwrap();
        assert!(state.contains("cluster_state:ok"), "{state}");
        set(&redis.url(), "{p00}:any", "served");
        redis.restart().unwrap();
    }
    assert_eq!(get(&redis.url(), "{p00}:any"), "served");
}

#[test]
fn a_server_that_cannot_start_says_why() {
    let directory = services::directory();
    let mut options = RedisOptions::new(directory.path());
    options.settings.push(("maxmemory-policy".to_owned(), "no-such-policy".to_owned()));
    let error = EmbeddedRedis::start(options).unwrap_err().to_string();
    assert!(error.contains("redis.log") && error.contains("no-such-policy"), "{error}");

    let mut options = postgres_options(&directory.path().join("postgres"));
    options.settings.push(("max_connections".to_owned(), "no-number".to_owned()));
    let error = EmbeddedPostgres::start(options).unwrap_err().to_string();
    assert!(error.contains("postgres.log") && error.contains("no-number"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_database_is_private_to_its_test_and_gone_after_it() {
    let (first, second) = (services::empty_database().await, services::empty_database().await);
    execute(&first.url, "CREATE TABLE mine ()").await;
    execute(&second.url, "CREATE TABLE mine ()").await;
    let url = first.url.clone();
    drop(first);
    wait_for("the database is gone", PATIENCE, async || tokio_postgres::connect(&url, NoTls).await.err())
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_test_gets_its_own_clone_of_a_template_that_is_made_once() {
    static TEMPLATE: services::Template = services::Template::new("a_template");
    static MADE: AtomicU32 = AtomicU32::new(0);
    let database = || {
        TEMPLATE.database(async |url| {
            MADE.fetch_add(1, Ordering::SeqCst);
            execute(&url, "CREATE TABLE migrated AS SELECT 'yes'::text AS answer").await;
        })
    };
    let (first, second) = tokio::join!(database(), database());
    execute(&first.url, "DROP TABLE migrated").await;
    assert_eq!(execute(&second.url, "SELECT answer FROM migrated").await, "yes");
    assert_eq!(MADE.load(Ordering::SeqCst), 1);
}

/// The settings that use these servers, without the variables of the tests' shell.
fn settings_of(embedded: &Embedded) -> Settings {
    let command_line = embedded.settings();
    let read_secret = |_: &Path| Err(std::io::Error::other("tests have no secret files"));
    let inputs = Inputs { file: None, environment: Vec::new(), command_line, read_secret: &read_secret };
    Settings::load(&inputs).unwrap()
}

fn start_in_a_process_of_its_own(directory: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["embedded::a_parent_that_waits_to_be_killed", "--exact", "--ignored"])
        .env(KILLED_PARENT, directory)
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

fn postgres_options(directory: &Path) -> PostgresOptions {
    let mut options = PostgresOptions::new(directory);
    options.durable = false;
    options
}

/// Every living process whose working directory is in `directory`.
fn working_in(directory: &Path) -> Vec<i32> {
    let directory = directory.canonicalize().unwrap();
    let mut found: Vec<i32> = fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|id| fs::read_link(format!("/proc/{id}/cwd")).is_ok_and(|cwd| cwd.starts_with(&directory)))
        .collect();
    found.sort_unstable();
    found
}

fn connect(url: &str) -> redis::Connection {
    redis::Client::open(url).unwrap().get_connection().unwrap()
}

fn ping(url: &str) -> String {
    redis::cmd("PING").query(&mut connect(url)).unwrap()
}

fn set(url: &str, key: &str, value: &str) {
    redis::cmd("SET").arg(key).arg(value).exec(&mut connect(url)).unwrap();
}

fn get(url: &str, key: &str) -> String {
    redis::cmd("GET").arg(key).query(&mut connect(url)).unwrap()
}

/// Runs one statement and returns the first column of its first row, as text.
fn query(url: &str, statement: &str) -> String {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(execute(url, statement))
}

async fn execute(url: &str, statement: &str) -> String {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    let messages = client.simple_query(statement).await.unwrap();
    messages
        .iter()
        .find_map(|message| match message {
            tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
            _ => None,
        })
        .unwrap_or_default()
}
