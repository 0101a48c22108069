use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use super::ledger;

const SNAPSHOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ledger/statements.txt");

/// The statements that are not typed queries, by their files.
fn statements() -> BTreeMap<String, String> {
    let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/src/ledger/sql"));
    let files = fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    let named = |path: PathBuf| {
        (path.file_stem().unwrap().to_string_lossy().into_owned(), fs::read_to_string(path).unwrap())
    };
    files.map(named).collect()
}

fn listed(all: Vec<String>) -> String {
    if all.is_empty() { "nothing".to_owned() } else { all.join(", ") }
}

/// Checks what the compiler cannot: that the statements fit the migrated tables, and which types they bind and read.
#[tokio::test(flavor = "multi_thread")]
#[allow(clippy::disallowed_methods, reason = "a switch of the test itself")]
async fn every_statement_in_a_file_fits_the_tables_and_takes_and_gives_what_the_snapshot_says() {
    let (database, _ledger) = ledger().await;
    let (client, connection) = tokio_postgres::connect(&database.url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    let mut found = String::new();
    for (name, text) in statements() {
        let statement = client.prepare(&text).await.unwrap_or_else(|error| panic!("{name}: {error:?}"));
        let takes = statement.params().iter().map(ToString::to_string);
        let gives = statement.columns().iter().map(|column| format!("{} {}", column.name(), column.type_()));
        let (takes, gives) = (listed(takes.collect()), listed(gives.collect()));
        writeln!(found, "{name}\n    takes {takes}\n    gives {gives}").unwrap();
    }
    if std::env::var_os("UPDATE_STATEMENTS").is_some() {
        fs::write(SNAPSHOT, &found).unwrap();
    }
    let written = fs::read_to_string(SNAPSHOT).unwrap_or_default();
    assert_eq!(
        found, written,
        "UPDATE_STATEMENTS=1 cargo test --test suite ledger::statements writes it again"
    );
}
