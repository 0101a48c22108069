//! What of the ledger's server is safe.

use super::{Finding, Verdict};
use crate::ledger::ServerFacts;
use crate::settings::Settings;

const UNKNOWN: &str = "unknown";
/// The oldest version that is tested.
const TESTED_FROM: u64 = 150_000;
/// The connections of an instance beside its pools: look-ups, notices, the question whether it answers, decisions, the
/// files of reports that are being read, and the comparisons with suppliers' bills.
const BESIDE_POOLS: usize = 3 + 1 + 1 + 1 + 4 + 2;

/// How many connections an instance takes at most.
pub(super) fn connections(settings: &Settings) -> usize {
    settings
        .postgres
        .pool_size
        .saturating_add(settings.postgres.writer_pool_size)
        .saturating_add(BESIDE_POOLS)
}

pub(super) fn findings(server: &ServerFacts, connections: usize) -> Vec<Finding> {
    let text = |name: &str| server.text(name).unwrap_or(UNKNOWN);
    let is = |name: &str, wanted: &str| server.text(name) == Some(wanted);
    let is_primary = is("transaction_read_only", "off") && !is("in_hot_standby", "on");
    vec![
        Finding::sound("postgres version", text("server_version")).unless(
            server.number("server_version_num").is_some_and(|version| version >= TESTED_FROM),
            Verdict::Warning,
            "use Postgres 15 or newer: older ones are not tested",
        ),
        Finding::sound("postgres takes writes", if is_primary { "yes" } else { "no" }).unless(
            is_primary,
            Verdict::Danger,
            match is("in_hot_standby", "on") {
                true => "connect to the primary: a standby books nothing",
                false => "set `default_transaction_read_only = off`: nothing is booked where it is on",
            },
        ),
        Finding::sound("postgres fsync", text("fsync")).unless(
            is("fsync", "on"),
            Verdict::Danger,
            "set `fsync = on`: without it a power cut can ruin the books",
        ),
        Finding::sound("postgres full_page_writes", text("full_page_writes")).unless(
            is("full_page_writes", "on"),
            Verdict::Danger,
            "set `full_page_writes = on`: without it a power cut can ruin the books",
        ),
        Finding::sound("postgres synchronous_commit", text("synchronous_commit")).unless(
            !is("synchronous_commit", "off") && server.text("synchronous_commit").is_some(),
            Verdict::Danger,
            "leave `synchronous_commit` on: what was answered as booked may be lost with the host",
        ),
        Finding::sound("postgres data_checksums", text("data_checksums")).unless(
            is("data_checksums", "on"),
            Verdict::Warning,
            "turn checksums on (`pg_checksums --enable`, server stopped): a damaged page is then noticed when it is read",
        ),
        Finding::sound("postgres autovacuum", text("autovacuum")).unless(
            is("autovacuum", "on"),
            Verdict::Warning,
            "set `autovacuum = on`: without it tables only grow and plans age",
        ),
        Finding::sound("postgres role is a superuser", text("is_superuser")).unless(
            !is("is_superuser", "true"),
            Verdict::Warning,
            "set `postgres.role = \"tollgate_service\"`: it can add to the books and not edit them",
        ),
        language(server),
        room(server, connections),
    ]
}

/// The language of messages, by which some failures are known.
fn language(server: &ServerFacts) -> Finding {
    let language = server.text("lc_messages").unwrap_or(UNKNOWN);
    let is_english = matches!(language.split('.').next(), Some("C" | "POSIX"))
        || language.to_ascii_lowercase().starts_with("en");
    Finding::sound("postgres lc_messages", language).unless(
        is_english,
        Verdict::Danger,
        "set `lc_messages = 'C'` in postgresql.conf, or `GRANT SET ON PARAMETER lc_messages` to the service's user: a \
         deadlock or a full disk is known by its English words, and is not tried again in another language",
    )
}

fn room(server: &ServerFacts, connections: usize) -> Finding {
    let most = server.number("max_connections").unwrap_or(0);
    let reserved = server.number("superuser_reserved_connections").unwrap_or(0);
    let needed = u64::try_from(connections).unwrap_or(u64::MAX);
    let advice = format!(
        "an instance takes up to {needed} connections and {reserved} are reserved: raise `max_connections`, for each \
        instance so many, or lower `postgres.pool_size`"
    );
    Finding::sound("postgres max_connections", most).unless(
        most.saturating_sub(reserved) >= needed,
        Verdict::Warning,
        advice,
    )
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::settings::Inputs;

    const SOUND: [(&str, &str); 13] = [
        ("server_version", "15.8"),
        ("server_version_num", "150008"),
        ("fsync", "on"),
        ("full_page_writes", "on"),
        ("synchronous_commit", "on"),
        ("data_checksums", "on"),
        ("autovacuum", "on"),
        ("max_connections", "25"),
        ("superuser_reserved_connections", "3"),
        ("transaction_read_only", "off"),
        ("in_hot_standby", "off"),
        ("is_superuser", "false"),
        ("lc_messages", "en_US.UTF-8"),
    ];

    #[test]
    fn an_instance_is_reckoned_with_every_connection_that_it_may_open() {
        let needed = [
            ("redis.url", "redis://localhost:1/"),
            ("postgres.url", "postgresql://localhost/tollgate"),
            ("installation.secret", "0123456789abcdef0123456789abcdef"),
        ];
        let read_secret = |_: &std::path::Path| Err(std::io::Error::other("there are no secret files"));
        let command_line = needed.map(|(key, value)| (key.to_owned(), value.to_owned())).to_vec();
        let inputs = Inputs { file: None, environment: Vec::new(), command_line, read_secret: &read_secret };
        let settings = Settings::load(&inputs).unwrap();
        let (pools, look_ups, notices, probe, decisions, files, bills) = (10 + 2, 3, 1, 1, 1, 4, 2);
        assert_eq!(connections(&settings), pools + look_ups + notices + probe + decisions + files + bills);
    }

    #[test]
    fn a_server_as_recommended_is_sound() {
        let findings = findings(&ServerFacts::of(SOUND), 22);
        assert!(findings.iter().all(|finding| finding.verdict == Verdict::Sound), "{findings:?}");
        assert_eq!(findings.len(), 10);
    }

    #[rstest]
    #[case("server_version_num", "140010", "postgres version", Verdict::Warning)]
    #[case("transaction_read_only", "on", "postgres takes writes", Verdict::Danger)]
    #[case("in_hot_standby", "on", "postgres takes writes", Verdict::Danger)]
    #[case("fsync", "off", "postgres fsync", Verdict::Danger)]
    #[case("lc_messages", "de_DE.UTF-8", "postgres lc_messages", Verdict::Danger)]
    #[case("full_page_writes", "off", "postgres full_page_writes", Verdict::Danger)]
    #[case("synchronous_commit", "off", "postgres synchronous_commit", Verdict::Danger)]
    #[case("data_checksums", "off", "postgres data_checksums", Verdict::Warning)]
    #[case("autovacuum", "off", "postgres autovacuum", Verdict::Warning)]
    #[case("is_superuser", "true", "postgres role is a superuser", Verdict::Warning)]
    #[case("max_connections", "24", "postgres max_connections", Verdict::Warning)]
    fn what_may_lose_something_is_named_alone(
        #[case] setting: &str,
        #[case] value: &str,
        #[case] name: &str,
        #[case] verdict: Verdict,
    ) {
        let findings = findings(&ServerFacts::of(SOUND.into_iter().chain([(setting, value)])), 22);
        let bad: Vec<_> = findings.iter().filter(|finding| finding.verdict != Verdict::Sound).collect();
        assert_eq!(
            bad.iter().map(|one| (one.name.as_str(), one.verdict)).collect::<Vec<_>>(),
            [(name, verdict)]
        );
        assert!(!bad[0].advice.is_empty());
    }

    #[test]
    fn what_a_server_does_not_say_is_not_taken_for_sound() {
        let findings = findings(&ServerFacts::default(), 22);
        let sound = findings.iter().filter(|finding| finding.verdict == Verdict::Sound);
        assert_eq!(sound.map(|one| one.name.as_str()).collect::<Vec<_>>(), ["postgres role is a superuser"]);
    }
}
