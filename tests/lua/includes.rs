//! How the scripts are put together: includes that only define, and keys that are built in one place.

use std::fs;
use std::path::{Path, PathBuf};

use tollgate::domain::ids::{Epoch, Partition, ReservationIds, TenantId};
use tollgate::domain::reservation::{CounterField, SubjectHash};
use tollgate::gate::keys::Keys;

use crate::gate::server::{Mode, Server};

fn lua() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("lua")
}

/// The Lua files below a folder of `lua`, by their paths there, with their texts.
fn files(folder: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(lua().join(folder)).unwrap() {
        let path = entry.unwrap().path();
        let name = path.strip_prefix(lua()).unwrap().to_str().unwrap().to_owned();
        if path.is_dir() {
            found.extend(files(&name));
        } else if let Some(stem) = name.strip_suffix(".lua") {
            found.push((stem.to_owned(), fs::read_to_string(&path).unwrap()));
        }
    }
    found
}

/// What a file may have at its left edge that only defines something.
fn only_defines(line: &str) -> bool {
    let constant =
        line.strip_prefix("local ").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_uppercase()));
    line.is_empty() || line == "end" || line.starts_with("--") || line.starts_with("  ") || constant
}

#[test]
fn an_include_is_one_function_of_its_files_name_and_never_returns_from_its_caller() {
    for (name, text) in files("include") {
        let stem = name.rsplit('/').next().unwrap();
        let function = match name.split('/').nth(1) {
            Some("keys") if stem == "prefix" => "key_prefix".to_owned(),
            Some("keys") => format!("{stem}_key"),
            Some("plain") => format!("plain_{stem}"),
            _ => stem.to_owned(),
        };
        let rest: Vec<_> = text.lines().filter(|line| !only_defines(line)).collect();
        let is_function = rest.len() == 1 && rest[0].starts_with(&format!("local function {function}("));
        let is_table = rest.first() == Some(&format!("local {stem} = {{}}").as_str())
            && rest[1..].iter().all(|line| line.starts_with(&format!("function {stem}.")));
        let are_constants = rest.is_empty() && text.lines().any(|line| line.starts_with("local "));
        assert!(is_function || is_table || are_constants, "lua/{name}.lua: {rest:#?}");
    }
}

#[test]
fn no_key_is_built_outside_the_includes_of_keys() {
    for (name, text) in files("") {
        let literals = text
            .lines()
            .filter(|line| !line.starts_with("--"))
            .flat_map(|line| line.split('\'').skip(1).step_by(2));
        let of_keys: Vec<_> =
            literals.filter(|literal| literal.ends_with(':') || literal.starts_with("tg1")).collect();
        assert!(of_keys.is_empty() || name.starts_with("include/keys/"), "lua/{name}.lua: {of_keys:?}");
    }
}

#[test]
fn lua_and_rust_build_the_same_keys() {
    let keys = Keys::new(64, 65_536, &[7; 32]);
    let tenant = TenantId::parse("acme:eu").unwrap();
    let partition = Partition::of(&tenant, 64);
    let hash = SubjectHash(*b"=abcdefghijkl");
    let field = CounterField(*b"AAbb01-_");
    let ids = ReservationIds::new(&[7; 32]);
    let id = ids.fresh(partition, 1_700_000_000_000, 9);
    let light = ids.light(id);
    let built = files("include/keys");
    let texts = ["include/integer", "include/light_scope"]
        .iter()
        .map(|name| fs::read_to_string(lua().join(format!("{name}.lua"))).unwrap());
    let (first, rest): (Vec<_>, Vec<_>) = built.iter().partition(|(name, _)| !name.ends_with("/subject"));
    let all: String = texts.chain(first.into_iter().chain(rest).map(|(_, text)| text.clone())).collect();
    let calls = "local prefix = key_prefix()\nreturn { prefix, due_key(prefix, 1700000060000), reservation_key(prefix, ARGV[1]), \
        tenant_key(prefix, ARGV[2]), subject_key(prefix, ARGV[2], ARGV[3]), known_subjects_key(tenant_key(prefix, ARGV[2])), \
        log_key(subject_key(prefix, ARGV[2], ARGV[3]), ARGV[4]), \
        bans_key(subject_key(prefix, ARGV[2], ARGV[3]), 1, '7'), \
        light_key(prefix, ARGV[2], ARGV[3]), light_key(prefix, ARGV[2], ''), reservation_key(prefix, ARGV[5]), \
        beside_key(subject_key(prefix, ARGV[2], ARGV[3])), \
        log_key(light_key(prefix, ARGV[2], ARGV[3]), ARGV[4]) }";
    let script = format!("#!lua\n{all}{calls}");
    let meta = keys.meta(partition);
    let (hex, light_hex) = (id.to_hex(), light.to_hex());
    let arguments = [hex.as_str(), tenant.as_str(), hash.as_str(), field.as_str(), light_hex.as_str()];
    let words = [&["EVAL", &script, "1", &meta][..], &arguments].concat();
    let answer: Vec<String> = redis::from_redis_value(Server::shared(Mode::Alone).command(&words)).unwrap();
    let expected = [
        meta.strip_suffix("meta").unwrap().to_owned(),
        keys.due(partition, 1_700_000_060_000),
        keys.reservation(id),
        keys.tenant(partition, &tenant),
        keys.subject(partition, &tenant, hash),
        keys.known_subjects(partition, &tenant),
        keys.log(partition, &tenant, Some(hash), field, false),
        keys.bans(partition, Epoch(7), &tenant),
        keys.light(partition, &tenant, Some(hash)),
        keys.light(partition, &tenant, None),
        keys.reservation(light),
        keys.light(partition, &tenant, Some(hash)),
        keys.log(partition, &tenant, Some(hash), field, true),
    ];
    assert_eq!(answer, expected);
    assert_eq!(built.len(), expected.len() - 3, "an include that this test does not hold");
}
