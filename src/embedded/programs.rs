//! Where the servers' programs are.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

use super::EmbeddedError;

const REDIS_PACKAGES: &str =
    "redis-server (Debian, Ubuntu), redis (Fedora, Alpine, Homebrew) or valkey, version 7.0 or newer";
const POSTGRES_PACKAGES: &str =
    "postgresql (Debian, Ubuntu, Alpine), postgresql-server (Fedora) or postgresql@17 (Homebrew)";

/// Directories that hold one Postgres each or, if the last part is `*`, one for each entry.
const POSTGRES_PLACES: [&str; 8] = [
    "/usr/lib/postgresql/*/bin",
    "/usr/pgsql-*/bin",
    "/usr/local/pgsql/bin",
    "/usr/libexec/postgresql*",
    "/opt/homebrew/opt/postgresql*/bin",
    "/usr/local/opt/postgresql*/bin",
    "/usr/local/bin",
    "/usr/bin",
];
const REDIS_PLACES: [&str; 4] = ["/usr/bin", "/usr/local/bin", "/opt/homebrew/bin", "/usr/sbin"];

/// `redis-server`, or `valkey-server` if only that is installed.
pub(super) fn redis_server() -> Result<PathBuf, EmbeddedError> {
    static FOUND: OnceLock<PathBuf> = OnceLock::new();
    if let Some(program) = FOUND.get() {
        return Ok(program.clone());
    }
    let found = ["redis-server", "valkey-server"]
        .into_iter()
        .find_map(|name| on_path(name).or_else(|| in_places(name, &REDIS_PLACES).into_iter().next()))
        .ok_or(EmbeddedError::NotInstalled { program: "redis-server", packages: REDIS_PACKAGES })?;
    Ok(FOUND.get_or_init(|| found).clone())
}

/// The directory of Postgres' programs: of the major version `wanted` if it is given and installed, otherwise the
/// one on the path, otherwise the newest.
pub(super) fn postgres_directory(wanted: Option<&str>) -> Result<PathBuf, EmbeddedError> {
    let installed = in_places("initdb", &POSTGRES_PLACES);
    let of_version = |program: &&PathBuf| {
        wanted.is_some_and(|version| {
            program.iter().any(|part| part.to_str().is_some_and(|part| version_of(part) == Some(version)))
        })
    };
    installed
        .iter()
        .find(of_version)
        .cloned()
        .or_else(|| on_path("initdb"))
        .or_else(|| installed.first().cloned())
        .and_then(|program| program.canonicalize().ok()?.parent().map(Path::to_owned))
        .ok_or(EmbeddedError::NotInstalled { program: "initdb (PostgreSQL)", packages: POSTGRES_PACKAGES })
}

/// What the user's own path says, asked of the shell.
fn on_path(name: &str) -> Option<PathBuf> {
    let output = Command::new("sh").args(["-c", "command -v \"$1\"", "sh", name]).output().ok()?;
    let path = PathBuf::from(String::from_utf8(output.stdout).ok()?.trim_end());
    path.is_absolute().then_some(path)
}

/// `name` in each of the places where it exists; of places that differ by version the newest first.
fn in_places(name: &str, places: &[&str]) -> Vec<PathBuf> {
    places
        .iter()
        .flat_map(|place| expanded(place))
        .map(|place| place.join(name))
        .filter(|path| path.is_file())
        .collect()
}

/// Expands one part that ends in `*` into the entries that begin so, the highest number first.
fn expanded(place: &str) -> Vec<PathBuf> {
    let Some((head, tail)) = place.split_once('*') else { return vec![PathBuf::from(place)] };
    let Some((parent, prefix)) = head.rsplit_once('/') else { return Vec::new() };
    let mut names: Vec<String> = fs::read_dir(parent)
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| name.starts_with(prefix))
        .collect();
    names.sort_by_key(|name| {
        std::cmp::Reverse(version_of(name).and_then(|version| version.parse::<u32>().ok()))
    });
    names.into_iter().map(|name| PathBuf::from(format!("{parent}/{name}{tail}"))).collect()
}

/// The major version in a directory's name: `15`, `pgsql-16`, `postgresql@17`.
fn version_of(name: &str) -> Option<&str> {
    let start = name.find(|letter: char| letter.is_ascii_digit())?;
    let digits = &name[start..];
    Some(digits.split(|letter: char| !letter.is_ascii_digit()).next().unwrap_or(digits))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_of_several_versions_comes_first() {
        let parent = tempfile::tempdir().unwrap();
        for version in ["9", "15", "17"] {
            fs::create_dir_all(parent.path().join(version).join("bin")).unwrap();
        }
        let place = format!("{}/*/bin", parent.path().display());
        let found: Vec<_> = expanded(&place)
            .iter()
            .map(|path| path.strip_prefix(parent.path()).unwrap().to_owned())
            .collect();
        assert_eq!(found, ["17/bin", "15/bin", "9/bin"].map(PathBuf::from));
    }

    #[test]
    fn a_version_is_read_from_the_names_that_systems_use() {
        for (name, version) in [("15", "15"), ("pgsql-16", "16"), ("postgresql@17", "17"), ("postgresql", "")]
        {
            assert_eq!(version_of(name).unwrap_or_default(), version);
        }
    }
}
