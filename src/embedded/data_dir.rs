//! The files of a data directory that are ours: its lock, its secret, and where its servers are.

use std::{
    fs,
    fs::{File, OpenOptions, TryLockError},
    io::Write,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    time::Duration,
};

use secrecy::SecretString;
use serde::{Deserialize, Serialize};

use super::{EmbeddedError, error::FileContext, place::create_directory, process::wait_until};

const LOCK: &str = "lock";
const SECRET: &str = "secret";
const SERVERS: &str = "servers.json";
const SECRET_BYTES: usize = 32;
const LOOKING_PATIENCE: Duration = Duration::from_millis(250);

/// Where the servers of a running data directory are, as written to `servers.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Servers {
    /// The URL of the gate's Redis.
    pub redis_url: String,
    /// The path of its socket.
    pub redis_socket: PathBuf,
    /// Its process id.
    pub redis_id: u32,
    /// The URL of the ledger's Postgres.
    pub postgres_url: String,
    /// The directory of its socket, as `psql --host` takes it.
    pub postgres_socket_directory: PathBuf,
    /// Its process id.
    pub postgres_id: u32,
    /// The process that started them.
    pub started_by: u32,
}

/// A data directory that this process holds: no other process starts servers in it until this is dropped.
#[derive(Debug)]
pub(super) struct DataDir {
    path: PathBuf,
    /// Locked by the system for as long as it is open, and freed however the process ends.
    _lock: File,
}

/// The result of trying to hold a data directory.
pub(super) enum Hold {
    /// It is ours.
    Ours(DataDir),
    /// Another process holds it.
    Others(PathBuf),
}

impl DataDir {
    /// Makes the directory if it is missing and tries to hold it.
    pub(super) fn hold(path: &Path) -> Result<Hold, EmbeddedError> {
        let path = create_directory(path)?;
        let (lock, file) = open_lock(&path)?;
        let mut tried = Err(TryLockError::WouldBlock);
        // A process that only checks the lock holds it for a moment.
        wait_until(LOOKING_PATIENCE, || {
            tried = file.try_lock();
            !matches!(tried, Err(TryLockError::WouldBlock))
        });
        match tried {
            Ok(()) => Ok(Hold::Ours(Self { path, _lock: file })),
            Err(TryLockError::WouldBlock) => Ok(Hold::Others(path)),
            Err(TryLockError::Error(source)) => Err(source).doing("lock", &lock),
        }
    }

    /// The canonical path.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The installation's secret, made the first time.
    pub(super) fn secret(&self) -> Result<SecretString, EmbeddedError> {
        let path = self.path.join(SECRET);
        if !path.exists() {
            let secret = format!("{}\n", hexadecimal(rand::random::<[u8; SECRET_BYTES]>()));
            write_whole(&path, secret.as_bytes())?;
        }
        read_secret(&self.path)
    }

    /// Announces where the servers are.
    pub(super) fn announce(&self, servers: &Servers) -> Result<(), EmbeddedError> {
        let path = self.path.join(SERVERS);
        let text = serde_json::to_vec_pretty(servers).map_err(std::io::Error::other).doing("write", &path)?;
        write_whole(&path, &text)
    }

    /// Removes the announcement.
    pub(super) fn withdraw(&self) {
        let _never_announced = fs::remove_file(self.path.join(SERVERS));
    }
}

/// Whether a process holds the data directory `path`. The check does not lock it, so that two checks do not meet.
pub(super) fn is_held(path: &Path) -> Result<bool, EmbeddedError> {
    let (lock, file) = open_lock(path)?;
    match file.try_lock_shared() {
        Ok(()) => Ok(false),
        Err(TryLockError::WouldBlock) => Ok(true),
        Err(TryLockError::Error(source)) => Err(source).doing("lock", &lock),
    }
}

fn open_lock(path: &Path) -> Result<(PathBuf, File), EmbeddedError> {
    let lock = path.join(LOCK);
    let mut options = OpenOptions::new();
    options.create(true).truncate(false).write(true).mode(0o600);
    let file = options.open(&lock).doing("open", &lock)?;
    Ok((lock, file))
}

/// Reads the announcement in `path`, if there is one.
pub(super) fn announced(path: &Path) -> Result<Option<Servers>, EmbeddedError> {
    let path = path.join(SERVERS);
    if !path.exists() {
        return Ok(None);
    }
    let text = fs::read(&path).doing("read", &path)?;
    serde_json::from_slice(&text)
        .map(Some)
        .map_err(|error| EmbeddedError::Damaged { path, reason: error.to_string() })
}

/// Whether `path` has a secret, which is made before anything else.
pub(super) fn has_secret(path: &Path) -> bool {
    path.join(SECRET).is_file()
}

/// Reads the secret in the data directory `path`.
pub(super) fn read_secret(path: &Path) -> Result<SecretString, EmbeddedError> {
    let path = path.join(SECRET);
    let text = fs::read_to_string(&path).doing("read", &path)?;
    let secret = text.trim_end();
    if secret.len() != 2 * SECRET_BYTES || !secret.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        let reason = format!("it must hold {} hexadecimal digits", 2 * SECRET_BYTES);
        return Err(EmbeddedError::Damaged { path, reason });
    }
    Ok(SecretString::from(secret))
}

/// Writes a file that only we may read. After a crash of the machine it is either absent or whole.
fn write_whole(path: &Path, content: &[u8]) -> Result<(), EmbeddedError> {
    let unfinished = path.with_extension("unfinished");
    let write = || {
        let mut file =
            OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(&unfinished)?;
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(&unfinished, path)
    };
    write().doing("write", path)
}

fn hexadecimal(bytes: [u8; SECRET_BYTES]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use secrecy::ExposeSecret;

    use super::*;

    fn held(path: &Path) -> DataDir {
        match DataDir::hold(path).unwrap() {
            Hold::Ours(data_dir) => data_dir,
            Hold::Others(path) => panic!("{} is held by another", path.display()),
        }
    }

    #[test]
    fn the_secret_is_made_once_and_only_its_owner_may_read_it() {
        let parent = tempfile::tempdir().unwrap();
        let data_dir = held(parent.path());
        let first = data_dir.secret().unwrap();
        assert_eq!(first.expose_secret().len(), 64);
        assert_eq!(data_dir.secret().unwrap().expose_secret(), first.expose_secret());
        let mode = fs::metadata(parent.path().join("secret")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_damaged_secret_is_refused_and_not_replaced() {
        let parent = tempfile::tempdir().unwrap();
        fs::write(parent.path().join("secret"), "short\n").unwrap();
        let error = held(parent.path()).secret().unwrap_err();
        assert!(error.to_string().contains("64 hexadecimal digits"), "{error}");
        assert_eq!(fs::read_to_string(parent.path().join("secret")).unwrap(), "short\n");
    }

    #[test]
    fn a_data_directory_has_one_holder_at_a_time() {
        let parent = tempfile::tempdir().unwrap();
        let first = held(parent.path());
        assert!(matches!(DataDir::hold(parent.path()).unwrap(), Hold::Others(_)));
        drop(first);
        held(parent.path());
    }
}
