use std::collections::BTreeMap;

use rstest::rstest;
use secrecy::ExposeSecret;

use super::*;

const SECRET: &str = "0123456789abcdef0123456789abcdef";

#[derive(Default)]
struct Sources {
    file: Option<&'static str>,
    variables: Vec<(&'static str, &'static str)>,
    command_line: Vec<(&'static str, &'static str)>,
    secret_files: BTreeMap<&'static str, &'static str>,
}

impl Sources {
    fn load(self) -> Result<Settings, SettingsError> {
        let owned = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect::<Vec<_>>()
        };
        let read_secret = |path: &Path| {
            let text = self.secret_files.get(path.to_str().unwrap());
            text.map(|text| (*text).to_owned()).ok_or_else(|| io::ErrorKind::NotFound.into())
        };
        Settings::load(&Inputs {
            file: self.file.map(|text| ("mine.toml".to_owned(), text.to_owned())),
            environment: owned(&self.variables),
            command_line: owned(&self.command_line),
            read_secret: &read_secret,
        })
    }
}

/// The least that is needed, and `more`.
fn with(more: &[(&'static str, &'static str)]) -> Sources {
    let needed = [
        ("TOLLGATE__REDIS__URL", "redis://localhost:1/"),
        ("TOLLGATE__POSTGRES__URL", "postgresql://user:pass@localhost/tollgate"),
        ("TOLLGATE__INSTALLATION__SECRET", SECRET),
    ];
    Sources { variables: [&needed, more].concat(), ..Sources::default() }
}

fn problem(sources: Sources) -> String {
    let error = sources.load().unwrap_err();
    assert_eq!(error.problems.len(), 1, "{error}");
    error.to_string()
}

#[test]
fn the_base_file_and_the_settings_have_the_same_keys() {
    let settings = with(&[]).load().unwrap();
    assert_eq!(settings.gate.partitions, 64);
    assert_eq!(settings.http.listen.to_string(), "127.0.0.1:8080");
    assert_eq!(settings.http.keep_alive_ms, 75_000);
    assert_eq!(settings.environment, Environment::Production);
    assert_eq!(settings.policy.unknown_tenant, UnknownTenant::Refuse);
}

#[test]
fn a_later_source_wins() {
    let mut sources = with(&[("TOLLGATE__GATE__PARTITIONS", "8"), ("TOLLGATE__WRITER__IDLE_POLL_MS", "7")]);
    sources.file = Some("environment = \"sandbox\"\n[gate]\npartitions = 4\ntombstone_unkeyed_seconds = 500");
    sources.command_line = vec![("writer.idle_poll_ms", "9")];
    let settings = sources.load().unwrap();
    assert_eq!(settings.environment, Environment::Sandbox);
    assert_eq!((settings.gate.partitions, settings.gate.tombstone_unkeyed_seconds), (8, 500));
    assert_eq!(settings.writer.idle_poll_ms, 9);
}

#[rstest]
#[case::variable(with(&[("TOLLGATE__GATE__PARTITION", "8")]), "gate.partition: there is no such key (from TOLLGATE__GATE__PARTITION); did you mean gate.partitions?")]
#[case::single_underscore(with(&[("TOLLGATE__HTTP_LISTEN", "127.0.0.1:1")]), "http_listen: there is no such key (from TOLLGATE__HTTP_LISTEN); did you mean http.listen?")]
#[case::file(Sources { file: Some("[htpp]\nlisten = \"127.0.0.1:1\""), ..with(&[]) }, "htpp.listen: there is no such key (from mine.toml:2); did you mean http.listen?")]
#[case::command_line(Sources { command_line: vec![("logs.colour", "x")], ..with(&[]) }, "logs.colour: there is no such key (from the command line)")]
fn an_unknown_key_is_refused_with_the_nearest_known_one(#[case] sources: Sources, #[case] expected: &str) {
    let message = problem(sources);
    assert!(message.starts_with(expected), "{message}");
}

#[rstest]
#[case("TOLLGATE__GATE__PARTITIONS", "eight", "gate.partitions: expected a whole number")]
#[case("TOLLGATE__GATE__PARTITIONS", "8.0", "gate.partitions: expected a whole number")]
#[case("TOLLGATE__GATE__PARTITIONS", "257", "gate.partitions: 257 is out of range: give 1 to 256")]
#[case("TOLLGATE__GATE__PARTITIONS", "0", "gate.partitions: 0 is out of range")]
#[case("TOLLGATE__GATE__PARTITIONS", "70000", "gate.partitions: ")]
#[case(
    "TOLLGATE__GATE__TOMBSTONE_KEYED_SECONDS",
    "86399",
    "gate.tombstone_keyed_seconds: 86399 is out of range"
)]
#[case("TOLLGATE__LEDGER__ACK_TIMEOUT_MS", "-1", "ledger.ack_timeout_ms: ")]
#[case("TOLLGATE__REDIS__ALLOW_UNSAFE", "yes", "redis.allow_unsafe: expected true or false")]
#[case("TOLLGATE__HTTP__LISTEN", "localhost", "http.listen: ")]
#[case(
    "TOLLGATE__HTTP__TRUSTED_PROXIES",
    "10.0.0.0/8,proxy",
    "http.trusted_proxies: proxy is not a network: write it such as 10.0.0.0/8"
)]
#[case(
    "TOLLGATE__HTTP__TRUSTED_PROXIES",
    "10.0.0.1/8",
    "http.trusted_proxies: 10.0.0.1/8 names an address inside a network: did you mean 10.0.0.0/8?"
)]
#[case("TOLLGATE__HTTP__TRUSTED_PROXIES", "::/0", "http.trusted_proxies: ::/0 is every address")]
#[case(
    "TOLLGATE__WEBHOOKS__ALLOWED_NETWORKS",
    "0.0.0.0/0",
    "webhooks.allowed_networks: 0.0.0.0/0 is every address"
)]
#[case("TOLLGATE__WEBHOOKS__TIMEOUT_MS", "99", "webhooks.timeout_ms: 99 is out of range")]
#[case("TOLLGATE__HTTP__OPS_LISTEN", "127.0.0.1:8080", "http.ops_listen: the same address as http.listen")]
#[case("TOLLGATE__ENVIRONMENT", "staging", "environment: ")]
#[case("TOLLGATE__LOGS__FORMAT", "xml", "logs.format: ")]
#[case("TOLLGATE__LOGS__LEVEL", "tollgate=loud", "logs.level: ")]
#[case("TOLLGATE__LOGS__REFUSALS_PER_SECOND", "100001", "logs.refusals_per_second: 100001 is out of range")]
#[case("TOLLGATE__LOGS__ADMITTED_PERCENT", "101", "logs.admitted_percent: ")]
#[case("TOLLGATE__POLICY__UNKNOWN_TENANT", "no plan", "policy.unknown_tenant: ")]
#[case(
    "TOLLGATE__LEDGER__ACK_TIMEOUT_MS",
    "10000",
    "ledger.ack_timeout_ms: 10000 must be below http.request_timeout_ms"
)]
#[case(
    "TOLLGATE__GATE__BACKLOG_EVENTS_HARD_MAX",
    "999999",
    "gate.backlog_events_hard_max: 999999 must not be below gate.backlog_events_max, which is 1000000"
)]
fn a_value_that_cannot_hold_is_refused_by_name_and_origin(
    #[case] variable: &'static str,
    #[case] value: &'static str,
    #[case] expected: &str,
) {
    let message = problem(with(&[(variable, value)]));
    assert!(message.starts_with(expected), "{message}");
    assert!(message.contains(&format!("(from {variable})")), "{message}");
}

#[test]
fn trusted_proxies_are_networks_and_single_addresses() {
    let settings =
        with(&[("TOLLGATE__HTTP__TRUSTED_PROXIES", "10.0.0.0/8, fd00::/8,192.0.2.1")]).load().unwrap();
    let networks: Vec<_> = settings.http.trusted_proxies.iter().map(ToString::to_string).collect();
    assert_eq!(networks, ["10.0.0.0/8", "fd00::/8", "192.0.2.1/32"]);
    assert!(with(&[]).load().unwrap().http.trusted_proxies.is_empty());
}

#[test]
fn a_value_of_another_type_in_the_file_is_refused() {
    let message = problem(Sources { file: Some("[gate]\npartitions = 8.5"), ..with(&[]) });
    assert_eq!(message, "gate.partitions: expected a whole number (from mine.toml:2)");
}

#[test]
fn every_problem_is_reported_at_once() {
    let error =
        with(&[("TOLLGATE__GATE__PARTITIONS", "0"), ("TOLLGATE__POLICY__POLL_MS", "0")]).load().unwrap_err();
    let keys: Vec<_> = error.problems.iter().map(|problem| problem.key.as_str()).collect();
    assert_eq!(keys, ["gate.partitions", "policy.poll_ms"]);
}

#[test]
fn what_must_be_given_is_named_with_the_ways_to_give_it() {
    let error = Sources::default().load().unwrap_err().to_string();
    assert_eq!(
        error,
        "redis.url: not set: give TOLLGATE__REDIS__URL, or name a file in redis.url_file\n\
         postgres.url: not set: give TOLLGATE__POSTGRES__URL, or name a file in postgres.url_file\n\
         installation.secret: not set: give TOLLGATE__INSTALLATION__SECRET, or name a file in installation.secret_file"
    );
}

#[rstest]
#[case("too-short-by-far")]
#[case("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa")]
fn a_weak_secret_is_refused_without_being_shown(#[case] secret: &'static str) {
    let message = problem(with(&[("TOLLGATE__INSTALLATION__SECRET", secret)]));
    assert!(message.starts_with("installation.secret: too weak"), "{message}");
    assert!(!message.contains(secret), "{message}");
}

#[test]
fn a_secret_may_stand_in_a_file_and_loses_its_line_end() {
    let mut sources = with(&[("TOLLGATE__REDIS__URL_FILE", "/run/redis-url")]);
    sources.variables.retain(|(name, _)| *name != "TOLLGATE__REDIS__URL");
    sources.secret_files.insert("/run/redis-url", "redis://elsewhere:2/\n");
    let settings = sources.load().unwrap();
    assert_eq!(settings.redis.url.expose_secret(), "redis://elsewhere:2/");
}

#[test]
fn a_secret_and_its_file_together_are_refused_and_so_is_a_missing_file() {
    let message = problem(with(&[("TOLLGATE__REDIS__URL_FILE", "/run/redis-url")]));
    assert!(message.starts_with("redis.url_file: redis.url is set too"), "{message}");
    let mut sources = with(&[("TOLLGATE__REDIS__URL_FILE", "/run/redis-url")]);
    sources.variables.retain(|(name, _)| *name != "TOLLGATE__REDIS__URL");
    let message = problem(sources);
    assert!(message.starts_with("redis.url_file: the file /run/redis-url could not be read"), "{message}");
}

#[test]
fn the_rendered_settings_are_toml_that_shows_origins_and_no_secret() {
    let settings = with(&[("TOLLGATE__GATE__PARTITIONS", "8")]).load().unwrap();
    for text in [settings.render(), format!("{settings:?}")] {
        assert!(!text.contains(SECRET) && !text.contains("user:pass"), "{text}");
    }
    let rendered = settings.render();
    assert!(rendered.contains("partitions = 8  # from TOLLGATE__GATE__PARTITIONS\n"), "{rendered}");
    assert!(rendered.contains("tombstone_unkeyed_seconds = 300\n"), "{rendered}");
    assert!(
        rendered.contains("secret = \"(hidden)\"  # from TOLLGATE__INSTALLATION__SECRET\n"),
        "{rendered}"
    );
    assert!(rendered.parse::<toml::Table>().is_ok(), "{rendered}");
}

#[test]
fn a_file_that_is_not_toml_is_refused_without_quoting_it() {
    let message = problem(Sources { file: Some("secret = \"hunter2"), ..with(&[]) });
    assert!(message.starts_with("mine.toml:1: not valid TOML"), "{message}");
    assert!(!message.contains("hunter2"), "{message}");
}
