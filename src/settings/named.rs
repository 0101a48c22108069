//! The servers and addresses that the configuration names, read before it is checked as a whole, to choose a command's
//! installation.

use std::net::SocketAddr;
use std::path::Path;

use super::sources::{Effective, Inputs, SECRETS, SettingsError};

/// The servers and addresses of the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    /// The keys that name a server or the installation's secret, each with its source:
    /// `redis.url (from TOLLGATE__REDIS__URL)`. Empty if the configuration names no installation.
    pub servers: Vec<String>,
    /// Where http is to listen.
    pub listen: SocketAddr,
}

impl Named {
    /// Reads what the sources name.
    ///
    /// # Errors
    /// As [`super::Settings::load`], except that nothing need be complete.
    pub fn load(inputs: &Inputs<'_>) -> Result<Self, SettingsError> {
        // A secret's file need not be readable here: that it is named is enough.
        let read_secret = |_: &Path| Ok(String::new());
        let effective = Effective::gather(&Inputs { read_secret: &read_secret, ..inputs.clone() })?;
        let servers = SECRETS.into_iter().filter_map(|key| effective.named_by(key)).collect();
        Ok(Self { servers, listen: effective.parse()?.http.listen })
    }

    /// As [`Self::load`], for this process and the file of `--config` if there is one.
    ///
    /// # Errors
    /// As [`Self::load`]; also when the file cannot be read.
    pub fn of_process(file: Option<&Path>) -> Result<Self, SettingsError> {
        super::with_process_inputs(file, Vec::new(), Self::load)
    }
}
