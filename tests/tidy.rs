//! Rules about the tree itself: who may import whom, file sizes, words that must not be there, documents that keep up.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn files(folder: &str, endings: &[&str]) -> Vec<PathBuf> {
    fn walk(folder: &Path, endings: &[&str], found: &mut Vec<PathBuf>) {
        let Ok(listing) = fs::read_dir(folder) else { return };
        for path in listing.flatten().map(|entry| entry.path()) {
            if path.is_dir() {
                walk(&path, endings, found);
            } else if endings.iter().any(|ending| path.to_string_lossy().ends_with(ending)) {
                found.push(path);
            }
        }
    }
    let mut found = Vec::new();
    walk(&root().join(folder), endings, &mut found);
    found.sort();
    found
}

fn relative(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).to_string_lossy().into_owned()
}

/// For each room of the house, the rooms of ours it may import.
const MAY_IMPORT: &[(&str, &[&str])] = &[
    ("domain", &["domain"]),
    ("gate", &["gate", "domain"]),
    ("ledger", &["ledger", "domain"]),
    ("writer", &["writer", "domain", "gate", "ledger", "telemetry", "clock"]),
    ("outbound", &["outbound", "domain"]),
    ("operations", &["operations", "domain", "gate", "ledger", "outbound", "telemetry", "beat", "clock"]),
    ("jobs", &["jobs", "domain", "gate", "ledger", "operations", "telemetry", "beat", "clock"]),
    ("http", &["http", "operations", "domain"]),
];

#[test]
fn every_room_imports_only_the_rooms_below_it() {
    let mut wrong = Vec::new();
    for (room, allowed) in MAY_IMPORT {
        for path in files(&format!("src/{room}"), &[".rs"]) {
            let text = fs::read_to_string(&path).unwrap();
            for (number, line) in text.lines().enumerate() {
                let code = line.split("//").next().unwrap_or("");
                for piece in code.split("crate::").skip(1) {
                    let first: String =
                        piece.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
                    if !first.is_empty() && !allowed.contains(&first.as_str()) {
                        wrong.push(format!("{}:{} imports {first}", relative(&path), number + 1));
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "imports against the map in src/lib.rs:\n{}", wrong.join("\n"));
}

/// The parts of `src/operations`, from below: each imports itself and the parts before it.
const OPERATIONS_FROM_BELOW: &[&str] = &[
    "bounded_lines",
    "requests",
    "run_progress",
    "limit_status",
    "answers",
    "error",
    "options",
    "instance",
    "damage",
    "policy_store",
    "progress",
    "load_level",
    "unadjusted",
    "core",
    "left_partitions",
    "boundaries",
    "decisions",
    "violations",
    "policy",
    "keys",
    "estimates",
    "preparation",
    "memory",
    "limit_bans",
    "erasure",
    "grants",
    "plan_changes",
    "upgrades",
    "periods",
    "statements",
    "outage",
    "calls",
    "adjustments",
    "reconcile",
    "reads",
    "supplier_bills",
    "webhooks",
    "jobs",
    "load",
    "Operations",
    "change_feed",
];

#[test]
fn a_group_of_verbs_imports_only_the_groups_below_it() {
    let place = |part: &str| OPERATIONS_FROM_BELOW.iter().position(|known| *known == part);
    let mut wrong = Vec::new();
    for path in files("src/operations", &[".rs"]) {
        let name = relative(&path);
        let inside = name.trim_start_matches("src/operations/").trim_end_matches(".rs");
        if inside == "mod" {
            continue;
        }
        let part = inside.split('/').next().unwrap();
        assert!(place(part).is_some(), "{name} has no place in OPERATIONS_FROM_BELOW");
        // What a part's own file calls `super` is `crate::operations`; in the files below it that is the part.
        let leaves_by_super =
            if inside.contains('/') && !inside.ends_with("/mod") { "super::super::" } else { "use super::" };
        let text = fs::read_to_string(&path).unwrap();
        let code = text.split("#[cfg(test)]").next().unwrap_or("");
        for (number, line) in (1..).zip(code.lines()) {
            let line = line.split("//").next().unwrap_or("");
            let imported = line.split("crate::operations::").skip(1).map(|piece| {
                piece.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default()
            });
            let is_below = |imported: &str| place(imported).is_some_and(|at| Some(at) <= place(part));
            wrong.extend(
                imported
                    .filter(|imported| !is_below(imported))
                    .map(|imported| format!("{name}:{number} imports {imported}")),
            );
            if line.contains(leaves_by_super) {
                wrong.push(format!("{name}:{number} imports by {leaves_by_super}"));
            }
        }
    }
    assert!(wrong.is_empty(), "imports against the order of the groups:\n{}", wrong.join("\n"));
}

/// What only some rooms may name: HTTP and its document are http's, and the command line is a client of them.
const NAMED_ONLY_IN: &[(&str, &[&str])] = &[
    ("actix", &["src/http"]),
    ("utoipa", &["src/http"]),
    ("ToSchema", &["src/http"]),
    ("StatusCode", &["src/http", "src/cli"]),
    ("Authorization", &["src/http", "src/cli", "src/app"]),
    ("If-Match", &["src/http", "src/cli"]),
    (" /v1/", &["src/http", "src/cli", "src/telemetry", "src/app"]),
];

#[test]
fn only_http_speaks_http() {
    let mut wrong = Vec::new();
    for path in files("src", &[".rs"]) {
        let (name, text) = (relative(&path), fs::read_to_string(&path).unwrap());
        for (word, rooms) in NAMED_ONLY_IN {
            if text.contains(word) && !rooms.iter().any(|room| name.starts_with(room)) {
                wrong.push(format!("{name} names {word}"));
            }
        }
        // A status is followed by its code: 404 `not_found`.
        let is_status = |word: &str| word.parse().is_ok_and(|number: u16| (200..600).contains(&number));
        let mut pairs = text.split_whitespace().zip(text.split_whitespace().skip(1));
        let has_status =
            pairs.any(|(word, next)| is_status(word.trim_start_matches('(')) && next.starts_with('`'));
        if has_status && !name.starts_with("src/http") && !name.starts_with("src/cli") {
            wrong.push(format!("{name} names an HTTP status"));
        }
    }
    assert!(wrong.is_empty(), "views, schemas and statuses belong to src/http:\n{}", wrong.join("\n"));
}

#[test]
fn only_settings_reads_the_environment_and_only_clock_asks_for_the_time() {
    let mut wrong = Vec::new();
    let rules: &[(&str, &[&str])] = &[
        ("env::var", &["src/settings", "src/cli", "src/main.rs"]),
        ("SystemTime::now", &["src/clock.rs"]),
        ("Timestamp::now", &["src/clock.rs", "src/cli"]),
        ("Utc::now", &["src/clock.rs"]),
        (".execute_blocking", &[]),
    ];
    for path in files("src", &[".rs"]) {
        let text = fs::read_to_string(&path).unwrap();
        let name = relative(&path);
        for (word, allowed) in rules {
            let code = text.split("#[cfg(test)]").next().unwrap_or("");
            if code.contains(word) && !allowed.iter().any(|prefix| name.starts_with(prefix)) {
                wrong.push(format!("{name} uses {word}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn tests_run_the_command_apart_from_the_shell_that_runs_them() {
    let others = files("tests", &[".rs"]).into_iter().filter(|path| {
        let text = fs::read_to_string(path).unwrap();
        let word = ["CARGO_BIN_EXE", "_tollgate"].concat();
        text.contains(&word) && relative(path) != "tests/support/process.rs"
    });
    let others: Vec<_> = others.map(|path| relative(&path)).collect();
    assert!(others.is_empty(), "run it with support::process::tollgate: {others:?}");
}

#[test]
fn files_keep_to_one_purpose_and_a_readable_size() {
    let mut long = Vec::new();
    for path in files("src", &[".rs"]).into_iter().chain(files("lua", &[".lua"])) {
        let name = relative(&path);
        if name.ends_with("schema.rs") {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        let lines = text.split("#[cfg(test)]").next().unwrap_or("").lines().count();
        if lines > 500 {
            long.push(format!("{name}: {lines} lines before its tests"));
        }
    }
    assert!(long.is_empty(), "split these by purpose:\n{}", long.join("\n"));
}

#[test]
fn every_migration_can_go_back() {
    for up in files("migrations", &["up.sql"]) {
        let down = up.with_file_name("down.sql");
        let text = fs::read_to_string(&down).unwrap_or_default();
        let statements: String = text.lines().filter(|line| !line.trim_start().starts_with("--")).collect();
        assert!(!statements.trim().is_empty(), "{} says nothing", relative(&down));
    }
}

#[test]
fn each_promise_is_held_by_named_tests_that_exist() {
    let text = fs::read_to_string(root().join("docs/INVARIANTS.md")).unwrap();
    let code: String = files("tests", &[".rs"])
        .into_iter()
        .chain(files("src", &[".rs"]))
        .map(|path| fs::read_to_string(path).unwrap())
        .collect();
    let is_a_name = |word: &&str| {
        word.matches('_').count() >= 3 && word.chars().all(|c| c.is_ascii_lowercase() || c == '_')
    };
    for number in 1..=10 {
        let section = text.split(&format!("\n## {number}. ")).nth(1);
        let section = section.unwrap_or_else(|| panic!("promise {number} has no section"));
        let section = section.split("\n## ").next().unwrap();
        let named: BTreeSet<&str> = section.split('`').skip(1).step_by(2).filter(is_a_name).collect();
        assert!(!named.is_empty(), "no test is named that holds promise {number}");
        let missing: Vec<_> = named.iter().filter(|name| !code.contains(&format!("fn {name}("))).collect();
        assert!(missing.is_empty(), "docs/INVARIANTS.md names tests that do not exist: {missing:?}");
    }
}

#[test]
fn documents_speak_of_the_software_alone() {
    let banned = ["TODO", "FIXME", "/work/", "/root/", ".library", "crates.io", "deb.debian.org"];
    let mut wrong = Vec::new();
    let documents = files("docs", &[".md"])
        .into_iter()
        .chain(files("src", &[".rs"]))
        .chain(files("lua", &[".lua"]))
        .chain(files("migrations", &[".sql", ".md"]))
        .chain(["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "Makefile"].map(|name| root().join(name)));
    for path in documents {
        let text = fs::read_to_string(&path).unwrap_or_default();
        for word in banned {
            if text.contains(word) {
                wrong.push(format!("{} says {word}", relative(&path)));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Every document of the project.
fn documents() -> Vec<PathBuf> {
    let folders = ["docs", "lua", "migrations"].into_iter().flat_map(|folder| files(folder, &[".md"]));
    folders.chain(["README.md", "CHANGELOG.md", "CONTRIBUTING.md"].map(|name| root().join(name))).collect()
}

#[test]
fn documents_have_lines_that_fit_a_screen() {
    let mut long = Vec::new();
    for path in documents() {
        let text = fs::read_to_string(&path).unwrap();
        let mut in_code = false;
        for (number, line) in (1..).zip(text.lines()) {
            in_code ^= line.trim_start().starts_with("```");
            if !in_code && !line.trim_start().starts_with('|') && line.chars().count() > 120 {
                long.push(format!("{}:{number}", relative(&path)));
            }
        }
    }
    assert!(long.is_empty(), "wrap these at 120 characters:\n{}", long.join("\n"));
}

/// Words that hide who does what, and what to write instead. The glossary names them, so it is left out.
const WORDS_GIVEN_UP: &[(&str, &str)] = &[
    ("told", "who reports, delivers, restores or notifies whom"),
    ("tells of", "has, reports or announces"),
    ("stands behind", "is after"),
    ("stand behind", "are after"),
    ("from behind", "after"),
    ("comes to", "is, or has the result"),
    ("knows of", "knows, or has"),
    ("known of", "known about"),
    ("the books have", "is booked, or the books contain"),
    ("whoever", "who it is"),
    ("besides", "also, or further"),
    ("anew", "again"),
    ("of now", "current"),
    ("says whether", "returns whether"),
    ("answers how many", "returns how many"),
    ("everybody", "every tenant, call or instance"),
];

/// The comments of a source file, or the prose of a document, line by line with their numbers.
fn prose(path: &Path) -> Vec<(usize, String)> {
    let text = fs::read_to_string(path).unwrap();
    let marks: &[&str] = match path.extension().and_then(|ending| ending.to_str()) {
        Some("md") => &[""],
        Some("rs") => &["//!", "///", "//"],
        _ => &["--"],
    };
    let mut in_code = false;
    let mut found = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim_start();
        let said = marks.iter().find_map(|mark| line.strip_prefix(mark));
        let Some(said) = said.filter(|said| !said.starts_with(" include ")) else { continue };
        in_code ^= said.trim_start().starts_with("```");
        if !in_code {
            // Between backticks stand names of the code.
            found.push((number, said.split('`').step_by(2).collect()));
        }
    }
    found
}

/// Every source file whose comments people read.
fn sources() -> Vec<PathBuf> {
    let rust = ["src", "tests", "benches"].into_iter().flat_map(|folder| files(folder, &[".rs"]));
    rust.chain(files("lua", &[".lua"])).chain(files("src/ledger/sql", &[".sql"])).collect()
}

#[test]
fn comments_and_documents_are_in_plain_words() {
    let glossary = root().join("docs/GLOSSARY.md");
    let mut wrong = Vec::new();
    for path in sources().into_iter().chain(documents()).filter(|path| *path != glossary) {
        for (number, said) in prose(&path) {
            let letters = said.to_lowercase().replace(|c: char| !c.is_alphanumeric() && c != '_', " ");
            let words = format!(" {} ", letters.split_whitespace().collect::<Vec<_>>().join(" "));
            let given_up = WORDS_GIVEN_UP.iter().filter(|(word, _)| words.contains(&format!(" {word} ")));
            wrong.extend(given_up.map(|(word, better)| {
                format!("{}:{number} says \"{word}\": write {better}", relative(&path))
            }));
        }
    }
    assert!(wrong.is_empty(), "words that docs/GLOSSARY.md gives up:\n{}", wrong.join("\n"));
}

#[test]
fn comments_have_lines_that_fit_a_screen() {
    let mut long = Vec::new();
    for path in sources() {
        let text = fs::read_to_string(&path).unwrap();
        for (number, line) in (1..).zip(text.lines()) {
            let said = line.trim_start().trim_start_matches(['/', '!', '-']);
            let is_comment = line.trim_start().starts_with("//") || line.trim_start().starts_with("--");
            if is_comment && !said.trim_start().starts_with('|') && line.chars().count() > 120 {
                long.push(format!("{}:{number}", relative(&path)));
            }
        }
    }
    assert!(long.is_empty(), "wrap these comments at 120 characters:\n{}", long.join("\n"));
}

#[test]
fn links_between_documents_lead_somewhere() {
    let mut broken = Vec::new();
    for path in documents() {
        let text = fs::read_to_string(&path).unwrap();
        for target in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let file = target.split('#').next().unwrap_or("");
            if file.is_empty() || file.contains("://") {
                continue;
            }
            if !path.parent().unwrap().join(file).exists() {
                broken.push(format!("{} -> {target}", relative(&path)));
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn statements_that_diesel_does_not_write_stand_in_files_of_their_own() {
    let mut named = BTreeSet::new();
    let mut in_code = BTreeSet::new();
    for path in files("src", &[".rs"]) {
        let text = fs::read_to_string(&path).unwrap();
        for statement in text.split("sql_query(").skip(1) {
            let file = statement.trim_start().strip_prefix("include_str!(\"");
            match file.and_then(|file| file.trim_start_matches("../").strip_prefix("sql/")) {
                Some(file) => named.extend(file.split('"').next().map(str::to_owned)),
                None => drop(in_code.insert(relative(&path))),
            }
        }
    }
    assert_eq!(in_code, BTreeSet::new(), "write a typed query, or a file in src/ledger/sql");
    let kept: BTreeSet<_> = files("src/ledger/sql", &[".sql"])
        .iter()
        .map(|path| path.file_name().unwrap().to_string_lossy().into_owned())
        .collect();
    assert_eq!(named, kept, "each file is one statement that the ledger uses");
}
