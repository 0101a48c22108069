use std::fs;

use super::{ledger, rows};

/// What Diesel calls the type of a column `a` of a table: as the server has it, in its own letters.
const COLUMNS: &str = "SELECT c.relname || '.' || a.attname AS name, \
        CASE WHEN a.attnotnull THEN named.type ELSE format('Nullable<%s>', named.type) END AS type \
    FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped \
    JOIN pg_type t ON t.oid = a.atttypid \
    CROSS JOIN LATERAL (SELECT replace(initcap(ltrim(t.typname, '_')), '_', '') AS word) w \
    CROSS JOIN LATERAL (SELECT CASE WHEN t.typname LIKE '\\_%' THEN format('Array<Nullable<%s>>', w.word) ELSE w.word END AS type) named \
    WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p') AND NOT EXISTS (SELECT FROM pg_inherits WHERE inhrelid = c.oid) \
        AND c.relname <> '__diesel_schema_migrations' ORDER BY c.relname, a.attnum";

const KEYS: &str = "SELECT c.relname || ' (' || string_agg(a.attname, ', ' ORDER BY k.place) || ')' AS key \
    FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid, unnest(i.indkey) WITH ORDINALITY AS k(number, place), pg_attribute a \
    WHERE i.indisprimary AND c.relnamespace = 'public'::regnamespace AND NOT EXISTS (SELECT FROM pg_inherits WHERE inhrelid = c.oid) AND a.attrelid = c.oid AND a.attnum = k.number \
        AND c.relname <> '__diesel_schema_migrations' GROUP BY c.relname ORDER BY c.relname";

const WRITE: &str =
    "src/ledger/schema.rs is not what the migrations make: CONTRIBUTING.md says how it is written";

/// The columns and the keys in the file.
fn written() -> (Vec<String>, Vec<String>) {
    let text = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/src/ledger/schema.rs")).unwrap();
    let (mut columns, mut keys) = (Vec::new(), Vec::new());
    let mut table = "";
    // Which tables can be joined is no column.
    for line in text.lines().filter(|line| !line.starts_with("diesel::joinable!")) {
        if let Some(key) = line.strip_prefix("    ").and_then(|line| line.strip_suffix(") {")) {
            table = key.split(' ').next().unwrap();
            keys.push(format!("{key})"));
        } else if let Some((column, kind)) = line.trim().split_once(" -> ") {
            columns.push(format!("{table}.{column} {}", kind.trim_end_matches(',')));
        }
    }
    (columns, keys)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_compiler_knows_the_tables_that_the_migrations_make() {
    let (database, _ledger) = ledger().await;
    let (columns, keys) = written();
    assert!(columns.len() > 100, "{columns:?}");
    assert_eq!(rows(&database, COLUMNS).await, columns, "{WRITE}");
    assert_eq!(rows(&database, KEYS).await, keys, "{WRITE}");
}
