//! Why the embedded servers could not be started or found, each with what to do about it.

use std::{io, path::PathBuf};

/// A failure of the embedded servers. The text names the file or server and the remedy.
#[derive(Debug, thiserror::Error)]
pub enum EmbeddedError {
    /// A server's program is not installed.
    #[error("{program} was not found: install {packages}, then start again")]
    NotInstalled {
        /// The program that was looked for.
        program: &'static str,
        /// The packages that bring it, by system.
        packages: &'static str,
    },
    /// Another process holds the data directory.
    #[error("{} is in use by another tollgate: stop it first, or give another --data-dir", .0.display())]
    InUse(PathBuf),
    /// The data directory is held, but its servers have not been announced.
    #[error("{} is held by a tollgate that is still starting: try again when it is ready", .0.display())]
    StillStarting(PathBuf),
    /// A file or directory could not be used.
    #[error("could not {doing} {}: {source}", .path.display())]
    File {
        /// What was being done, as a verb: `create`, `lock` …
        doing: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// A program could not be run at all.
    #[error("could not run {}: {source}", .program.display())]
    Run {
        /// The program.
        program: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// A server or its set-up ended or did not answer in time.
    #[error("{server} did not start ({reason}); the end of {} reads:\n{last_lines}", .log.display())]
    NotReady {
        /// Which server.
        server: &'static str,
        /// What was seen instead of an answer.
        reason: String,
        /// Its log file.
        log: PathBuf,
        /// The end of the log.
        last_lines: String,
    },
    /// A signal could not be sent.
    #[error("could not send {signal} to {server} (process {id}): {source}")]
    Signal {
        /// Which server.
        server: &'static str,
        /// Its process id.
        id: u32,
        /// The signal's name.
        signal: &'static str,
        /// The system's reason.
        source: io::Error,
    },
    /// A process left by a killed run did not end.
    #[error("a {server} of an earlier run still works in {} and would not end: end process {id} by hand", .directory.display())]
    Leftover {
        /// Which server.
        server: &'static str,
        /// Its directory.
        directory: PathBuf,
        /// The process to end.
        id: i32,
    },
    /// Neither the data directory nor the system's temporary directory can hold a socket.
    #[error(
        "no directory for the socket of {server}: {} is too long or closed to the user {user}; give a shorter --data-dir",
        .preferred.display()
    )]
    NoSocketDirectory {
        /// Which server.
        server: &'static str,
        /// Where it would have been.
        preferred: PathBuf,
        /// Who had to reach it.
        user: String,
    },
    /// Postgres refuses root, and no other user exists.
    #[error(
        "Postgres cannot run as root and neither a user `postgres` nor `nobody` exists: create one, or start as another user"
    )]
    NoServerUser,
    /// `secret` or `servers.json` has wrong contents.
    #[error("{} is damaged ({reason}): restore it from a copy", .path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
}

/// Attaches what was being done, and to which path, to an IO error.
pub(super) trait FileContext<T> {
    /// Turns an IO error into [`EmbeddedError::File`].
    fn doing(self, doing: &'static str, path: &std::path::Path) -> Result<T, EmbeddedError>;
}

impl<T> FileContext<T> for io::Result<T> {
    fn doing(self, doing: &'static str, path: &std::path::Path) -> Result<T, EmbeddedError> {
        self.map_err(|source| EmbeddedError::File { doing, path: path.to_owned(), source })
    }
}
