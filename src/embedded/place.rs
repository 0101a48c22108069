//! Where a server's files live and who may reach them.

use std::{
    env, fs,
    fs::{DirBuilder, File, OpenOptions},
    io::{Read, Seek, SeekFrom},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, chown},
    path::{Path, PathBuf},
};

use nix::unistd::{Uid, User};

use super::{EmbeddedError, error::FileContext};

/// The longest path that a Unix socket may have on every system we run on, in bytes.
const SOCKET_PATH_BYTES_MAX: usize = 103;
/// A log longer than this starts again, empty, at the next start.
const LOG_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// How much of a log is shown when a start fails.
const LOG_TAIL_BYTES: u64 = 2_000;
/// Names the socket directory outside the server's directory, so that the next start can remove it.
const SOCKET_NOTE: &str = "socket-directory";
const TEMPORARY_PREFIX: &str = "tollgate-";

/// The unprivileged user for a server that refuses root: `None` when we are not root ourselves.
pub(super) fn server_user() -> Result<Option<User>, EmbeddedError> {
    if !Uid::effective().is_root() {
        return Ok(None);
    }
    let found = ["postgres", "nobody"].into_iter().find_map(|name| User::from_name(name).ok().flatten());
    found.map(Some).ok_or(EmbeddedError::NoServerUser)
}

/// Creates `directory` with its parents if it is missing and returns its canonical path. A directory that has to
/// let a server's user through is closed to reading, not to passing.
pub(super) fn create_directory(directory: &Path) -> Result<PathBuf, EmbeddedError> {
    let mode = if Uid::effective().is_root() { 0o711 } else { 0o700 };
    DirBuilder::new().recursive(true).mode(mode).create(directory).doing("create", directory)?;
    directory.canonicalize().doing("find", directory)
}

/// Creates `directory` (its parent must exist) for `user` alone, or for us alone.
pub(super) fn create_private(directory: &Path, user: Option<&User>) -> Result<(), EmbeddedError> {
    DirBuilder::new().mode(0o700).create(directory).doing("create", directory)?;
    give_to(directory, user)
}

/// Makes `user` the owner of `path`; without a user it stays ours.
pub(super) fn give_to(path: &Path, user: Option<&User>) -> Result<(), EmbeddedError> {
    let Some(user) = user else { return Ok(()) };
    chown(path, Some(user.uid.as_raw()), Some(user.gid.as_raw())).doing("hand over", path)
}

/// A private directory for one server's socket.
#[derive(Debug)]
pub(super) struct SocketDirectory {
    path: PathBuf,
    /// Outside the server's directory: removed on drop.
    temporary: bool,
}

impl SocketDirectory {
    /// Makes an empty private directory for a socket called `name`: inside `directory` if the path is short enough
    /// and open to `user`, otherwise in the system's temporary directory. Whatever an earlier run left is removed.
    pub(super) fn create(
        server: &'static str,
        directory: &Path,
        name: &str,
        user: Option<&User>,
    ) -> Result<Self, EmbeddedError> {
        remove_noted(directory);
        let preferred = directory.join("socket");
        if preferred.exists() {
            fs::remove_dir_all(&preferred).doing("remove", &preferred)?;
        }
        if fits(&preferred, name) && passable(directory, user) {
            create_private(&preferred, user)?;
            return Ok(Self { path: preferred, temporary: false });
        }
        for parent in [env::temp_dir(), PathBuf::from("/tmp")] {
            let Ok(parent) = parent.canonicalize() else { continue };
            let path = parent.join(format!("{TEMPORARY_PREFIX}{:016x}", rand::random::<u64>()));
            if fits(&path, name) && passable(&parent, user) {
                create_private(&path, user)?;
                let note = directory.join(SOCKET_NOTE);
                fs::write(&note, path.as_os_str().as_encoded_bytes()).doing("write", &note)?;
                return Ok(Self { path, temporary: true });
            }
        }
        let user = user.map_or_else(|| "of this process".to_owned(), |user| user.name.clone());
        Err(EmbeddedError::NoSocketDirectory { server, preferred, user })
    }

    /// The directory.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for SocketDirectory {
    fn drop(&mut self) {
        if self.temporary {
            let _gone_already = fs::remove_dir_all(&self.path);
        }
    }
}

/// Removes the temporary socket directory that a killed run noted in `directory`.
fn remove_noted(directory: &Path) {
    let note = directory.join(SOCKET_NOTE);
    let Ok(noted) = fs::read_to_string(&note).map(PathBuf::from) else { return };
    // Removes only a directory that create() could have made, even if the note names another.
    let ours = noted.is_absolute()
        && noted.file_name().is_some_and(|name| name.to_string_lossy().starts_with(TEMPORARY_PREFIX));
    if ours {
        let _gone_already = fs::remove_dir_all(&noted);
    }
    let _gone_already = fs::remove_file(&note);
}

fn fits(directory: &Path, name: &str) -> bool {
    directory.join(name).as_os_str().len() <= SOCKET_PATH_BYTES_MAX
}

/// Whether `user` may pass through `directory` and everything above it. Without a user it is our own, so yes.
fn passable(directory: &Path, user: Option<&User>) -> bool {
    let Some(user) = user else { return true };
    directory.ancestors().all(|part| {
        fs::metadata(part).is_ok_and(|found| {
            let bit = if found.uid() == user.uid.as_raw() {
                0o100
            } else if found.gid() == user.gid.as_raw() {
                0o010
            } else {
                0o001
            };
            found.mode() & bit != 0
        })
    })
}

/// Opens a server's log for appending; one that has grown too long is emptied first.
pub(super) fn open_log(path: &Path) -> Result<File, EmbeddedError> {
    let too_long = fs::metadata(path).is_ok_and(|found| found.len() > LOG_BYTES_MAX);
    let mut options = OpenOptions::new();
    options.create(true).mode(0o600);
    if too_long {
        options.write(true).truncate(true)
    } else {
        options.append(true)
    };
    options.open(path).doing("open", path)
}

/// The last lines of a log.
pub(super) fn last_lines(path: &Path) -> String {
    let read = || {
        let mut file = File::open(path)?;
        let start = file.metadata()?.len().saturating_sub(LOG_TAIL_BYTES);
        file.seek(SeekFrom::Start(start))?;
        let mut tail = Vec::new();
        file.read_to_end(&mut tail)?;
        Ok::<_, std::io::Error>(String::from_utf8_lossy(&tail).into_owned())
    };
    read().unwrap_or_else(|error| format!("(the log could not be read: {error})"))
}

/// A path for a URL: everything but plain characters and `keep` is percent-encoded.
pub(super) fn percent_encoded(path: &Path, keep: &[u8]) -> String {
    use std::fmt::Write;

    let mut text = String::new();
    for &byte in path.as_os_str().as_encoded_bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) || keep.contains(&byte) {
            text.push(char::from(byte));
        } else {
            let _infallible = write!(text, "%{byte:02X}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_encoded_for_urls() {
        let path = Path::new("/a b/ü.sock");
        assert_eq!(percent_encoded(path, b"/"), "/a%20b/%C3%BC.sock");
        assert_eq!(percent_encoded(path, b""), "%2Fa%20b%2F%C3%BC.sock");
    }

    #[test]
    fn a_socket_that_would_not_fit_inside_goes_to_a_temporary_directory_that_is_removed() {
        let parent = tempfile::tempdir().unwrap();
        let directory = parent.path().join("x".repeat(120));
        fs::create_dir(&directory).unwrap();
        let made = SocketDirectory::create("a server", &directory, "redis.sock", None).unwrap();
        let path = made.path().to_owned();
        assert!(!path.starts_with(parent.path()) && path.is_dir());
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o700);
        drop(made);
        assert!(!path.exists());
    }

    #[test]
    fn a_temporary_socket_directory_of_a_killed_run_is_removed_by_the_next() {
        let parent = tempfile::tempdir().unwrap();
        let directory = parent.path().join("x".repeat(120));
        fs::create_dir(&directory).unwrap();
        let killed = SocketDirectory::create("a server", &directory, "redis.sock", None).unwrap();
        let left = killed.path().to_owned();
        std::mem::forget(killed);
        let next = SocketDirectory::create("a server", &directory, "redis.sock", None).unwrap();
        assert!(!left.exists() && next.path() != left);
    }
}
