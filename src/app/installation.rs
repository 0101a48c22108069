//! Chooses the installation that a command is about: the one that is named, or the only one there is.

use std::fmt;
use std::path::{Path, PathBuf};

use secrecy::ExposeSecret;

use crate::embedded::Embedded;
use crate::settings::{Named, Settings};
use crate::{gate, ledger};

/// The directory of `tollgate up` unless it is named.
pub const DEFAULT_DATA_DIR: &str = ".tollgate";

/// The installation that a command is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// An embedded one, running or stopped.
    Embedded {
        /// Its data directory.
        data_dir: PathBuf,
        /// The configuration file for everything but its servers.
        config: Option<PathBuf>,
    },
    /// The configured servers.
    Config(Option<PathBuf>),
}

/// Why no installation could be chosen.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InstallationError {
    /// Both an embedded directory and servers are named; only one can be meant.
    #[error("the embedded directory `{}` is named, and servers are configured too: {}", .data_dir.display(), .servers.join(", "))]
    NamedTwice {
        /// The directory.
        data_dir: PathBuf,
        /// The settings that name the servers.
        servers: Vec<String>,
    },
    /// `up` has servers of its own.
    #[error("`tollgate up` runs servers of its own, and others are configured: {}", .0.join(", "))]
    ServersOfItsOwn(Vec<String>),
    /// There is no such directory.
    #[error("`{}` does not exist", .0.display())]
    Missing(PathBuf),
    /// No `tollgate up` has run in it.
    #[error("`{}` is not the data directory of a `tollgate up`", .0.display())]
    NotADataDir(PathBuf),
}

impl InstallationError {
    /// What to do next.
    pub fn remedy(&self) -> &'static str {
        match self {
            Self::NamedTwice { .. } => "leave out --data-dir, or unset what configures the servers",
            Self::ServersOfItsOwn(_) => "run `tollgate serve` on them, or unset what configures them",
            Self::Missing(_) | Self::NotADataDir(_) => {
                "name the --data-dir of a `tollgate up`, or configure the servers"
            }
        }
    }

    /// Whether the command line contradicts the configuration.
    pub fn is_contradiction(&self) -> bool {
        matches!(self, Self::NamedTwice { .. } | Self::ServersOfItsOwn(_))
    }
}

impl Target {
    /// The named directory, the configured servers, or the default directory where nothing else is configured and it
    /// exists.
    ///
    /// Errors: both are named; the configuration cannot be read; the directory is none of ours.
    pub fn choose(data_dir: Option<PathBuf>, config: Option<PathBuf>) -> anyhow::Result<Self> {
        let named = Named::of_process(config.as_deref())?;
        let target = Self::of(data_dir, config, named.servers, Path::new(DEFAULT_DATA_DIR).is_dir())?;
        if let Self::Embedded { data_dir, .. } = &target {
            check_data_dir(data_dir)?;
        }
        Ok(target)
    }

    fn of(
        data_dir: Option<PathBuf>,
        config: Option<PathBuf>,
        servers: Vec<String>,
        has_default: bool,
    ) -> Result<Self, InstallationError> {
        match data_dir {
            Some(data_dir) if servers.is_empty() => Ok(Self::Embedded { data_dir, config }),
            Some(data_dir) => Err(InstallationError::NamedTwice { data_dir, servers }),
            None if has_default && config.is_none() && servers.is_empty() => {
                Ok(Self::Embedded { data_dir: PathBuf::from(DEFAULT_DATA_DIR), config: None })
            }
            None => Ok(Self::Config(config)),
        }
    }
}

/// Refuses a directory in which no `tollgate up` has run, so that a question never creates one.
fn check_data_dir(data_dir: &Path) -> Result<(), InstallationError> {
    if !data_dir.exists() {
        Err(InstallationError::Missing(data_dir.to_owned()))
    } else if !Embedded::is_data_dir(data_dir) {
        Err(InstallationError::NotADataDir(data_dir.to_owned()))
    } else {
        Ok(())
    }
}

/// Refuses configured servers, because `up` runs its own.
pub(super) fn check_no_servers(config: Option<&Path>) -> anyhow::Result<()> {
    let servers = Named::of_process(config)?.servers;
    anyhow::ensure!(servers.is_empty(), InstallationError::ServersOfItsOwn(servers));
    Ok(())
}

/// Where an installation's servers are, without their passwords.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Servers {
    /// The gate's.
    pub redis: String,
    /// The ledger's, with its database.
    pub postgres: String,
}

impl Servers {
    /// The servers of these settings.
    pub fn of(settings: &Settings) -> Self {
        Self {
            redis: gate::address_of(settings.redis.url.expose_secret()),
            postgres: ledger::address_of(settings.postgres.url.expose_secret()),
        }
    }
}

impl fmt::Display for Servers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Redis at {}, Postgres at {}", self.redis, self.postgres)
    }
}

/// Names the command's installation on standard error.
pub fn say_installation(installation: impl fmt::Display) {
    eprintln!("installation: {installation}");
}

/// Describes an embedded installation.
pub(super) fn embedded_in(data_dir: &Path) -> String {
    let path = data_dir.canonicalize().unwrap_or_else(|_| data_dir.to_owned());
    format!("the embedded one in {}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_embedded_directory_is_meant_only_where_it_is_named_or_nothing_else_is_configured() {
        let (dir, file) = (PathBuf::from("here"), PathBuf::from("mine.toml"));
        let servers = vec!["redis.url (from TOLLGATE__REDIS__URL)".to_owned()];
        let default = PathBuf::from(DEFAULT_DATA_DIR);
        let of = Target::of;
        let embedded = |data_dir: &PathBuf, config: Option<&PathBuf>| Target::Embedded {
            data_dir: data_dir.clone(),
            config: config.cloned(),
        };
        assert_eq!(of(Some(dir.clone()), None, Vec::new(), true), Ok(embedded(&dir, None)));
        assert_eq!(
            of(Some(dir.clone()), Some(file.clone()), Vec::new(), true),
            Ok(embedded(&dir, Some(&file)))
        );
        assert_eq!(of(None, None, Vec::new(), true), Ok(embedded(&default, None)));
        assert_eq!(of(None, None, Vec::new(), false), Ok(Target::Config(None)));
        assert_eq!(of(None, None, servers.clone(), true), Ok(Target::Config(None)));
        assert_eq!(of(None, Some(file.clone()), Vec::new(), true), Ok(Target::Config(Some(file))));
        let twice = InstallationError::NamedTwice { data_dir: dir.clone(), servers: servers.clone() };
        assert_eq!(of(Some(dir), None, servers, true), Err(twice));
    }
}
