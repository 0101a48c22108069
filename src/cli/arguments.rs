//! What can be typed.

mod reports;
mod values;

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Parser, Subcommand, ValueEnum};
use jiff::Timestamp;

use super::entries::EntriesCommand;
use super::output::Format;
use super::parked::ParkedCommand;
use super::replay::ReplayArguments;
use crate::app::DEFAULT_DATA_DIR;
use crate::domain::ids::TenantId;
use crate::domain::policy::edit::Prune;

pub(super) use reports::{
    AdjustmentsReport, BalancesReport, EntriesReport, PlainReport, ReconciliationReport, ReportCommand,
    RevenueReport, Span, TopReport, UsageReport,
};
pub(super) use values::{EventPlace, word};
use values::{event_place, instant, instant_or_ago, instant_or_now};

const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  failed; the error says why and what to do next
  2  not understood
  3  verify found faults, the ledger's totals differ from those of a replay, or doctor found a setting
     that may lose something
  4  the service or one of its servers did not answer

Environment:
  TOLLGATE_KEY        the API key of commands that talk to a service
  TOLLGATE_ADMIN_KEY  the same, preferred by `policy`, `key`, `job` and `report`; the first admin key
                      of `up` and `serve`
  NO_COLOR            no colours";

/// A quota gate and billing ledger: reserve units, consume what was used, release the rest.
#[derive(Debug, Parser)]
#[command(name = "tollgate", version, after_help = EXIT_CODES, propagate_version = true)]
pub struct Arguments {
    /// How results are printed.
    #[arg(long, global = true, value_enum, default_value = "table")]
    pub output: Format,
    /// The environment's configuration file, read over the built-in defaults.
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run everything: private Redis and Postgres, migrated, with a demo policy.
    Up(Up),
    /// Run against configured servers.
    Serve(Serve),
    /// Bring the ledger's schema up to date.
    Migrate,
    /// Look at the configuration.
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Show where the servers are, how far the writer lags, and the epochs.
    Status(Place),
    /// Hold the live settings of both servers against what is safe; exit code 3 when something may be lost.
    Doctor {
        /// Also reckon Redis's memory for so many reserves a second, each with an idempotency key and consumed.
        #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
        calls_per_second: Option<u32>,
        /// Which installation.
        #[command(flatten)]
        place: Place,
    },
    /// Print what a key of Redis holds as text; reads only.
    Inspect {
        /// The key, in quotes: 'tg1:{p07g}:state:acme'.
        key: String,
        /// Which installation.
        #[command(flatten)]
        place: Place,
    },
    /// Read, compare and change the policy of a running service.
    #[command(subcommand)]
    Policy(PolicyCommand),
    /// Make, list, rotate and revoke API keys of a running service.
    #[command(subcommand)]
    Key(KeyCommand),
    /// Look at the jobs of a running service, or run one now.
    #[command(subcommand)]
    Job(JobCommand),
    /// Drive a running service with a recorded trace of model calls.
    Replay(ReplayArguments),
    /// Check the books; exit code 3 when something is wrong.
    Verify(Verify),
    /// Read reports of a running service.
    #[command(subcommand)]
    Report(ReportCommand),
    /// Let old months of entries leave the books, exported and proven.
    #[command(subcommand)]
    Entries(EntriesCommand),
    /// Look after events that could not be booked.
    #[command(subcommand)]
    Quarantine(QuarantineCommand),
    /// Settle calls taken while the gate was away that it will never take.
    #[command(subcommand)]
    Parked(ParkedCommand),
    /// Print the completion script of a shell.
    Completion {
        /// Which shell.
        shell: clap_complete::Shell,
    },
}

/// Options of `up`.
#[derive(Debug, Args)]
pub struct Up {
    /// Where the private servers keep their data.
    #[arg(long, value_name = "DIR", default_value = DEFAULT_DATA_DIR)]
    pub data_dir: PathBuf,
    /// Where to listen; port 0 takes a free one.
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub listen: Option<SocketAddr>,
    /// A clock that moves only by `PUT /v1/admin/clock`, from START on (RFC 3339; now).
    #[arg(long, value_name = "START", num_args = 0..=1, default_missing_value = "now", value_parser = instant_or_now)]
    pub test_clock: Option<Timestamp>,
    /// Start without the demo policy.
    #[arg(long)]
    pub no_demo: bool,
}

/// Options of `serve`.
#[derive(Debug, Args)]
pub struct Serve {
    /// What this instance runs.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "http,writer,jobs")]
    pub roles: Vec<RoleName>,
    /// Where to listen; absent: as configured.
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub listen: Option<SocketAddr>,
    /// A clock that moves only by `PUT /v1/admin/clock`; only if the configuration names a sandbox.
    #[arg(long, value_name = "START", num_args = 0..=1, default_missing_value = "now", value_parser = instant_or_now)]
    pub test_clock: Option<Timestamp>,
}

/// A part of the service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum RoleName {
    /// Answers calls.
    Http,
    /// Books events from the outbox into the ledger.
    Writer,
    /// Wakes by clock.
    Jobs,
}

/// `config …`.
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Show the effective configuration, secrets hidden, or say what is wrong with it.
    Check,
}

/// Which installation an operator's command is about.
#[derive(Debug, Clone, Args)]
pub struct Place {
    /// The embedded installation's directory; absent: the configured servers, or `.tollgate` if none are configured.
    /// With it, a configuration file is read for all but the servers.
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
}

/// Options of `verify`.
#[derive(Debug, Args)]
pub struct Verify {
    /// Which installation.
    #[command(flatten)]
    pub place: Place,
    /// Also rebuild the derived tables from the entries.
    #[arg(long)]
    pub rebuild: bool,
    /// Replace what differs of balances and hourly usage.
    #[arg(long, requires = "rebuild")]
    pub write: bool,
    /// Do not ask whether to replace it.
    #[arg(long, requires = "write")]
    pub yes: bool,
    /// Prove the file of a month that has left the books instead, by its manifest.
    #[arg(long, value_name = "FILE", conflicts_with = "rebuild")]
    pub archive: Option<PathBuf>,
}

/// `quarantine …`.
#[derive(Debug, Subcommand)]
pub enum QuarantineCommand {
    /// Show the open ones.
    List(Place),
    /// Book one again.
    Retry {
        /// Its id, as the list shows it: `p07:1-42`.
        #[arg(value_parser = event_place)]
        id: EventPlace,
        /// Which installation.
        #[command(flatten)]
        place: Place,
    },
    /// Give one up for good: its units are never booked.
    Discard {
        /// Its id, as the list shows it: `p07:1-42`.
        #[arg(value_parser = event_place)]
        id: EventPlace,
        /// Why, for the audit log.
        #[arg(long, value_parser = NonEmptyStringValueParser::new())]
        reason: String,
        /// Do not ask.
        #[arg(long)]
        yes: bool,
        /// Which installation.
        #[command(flatten)]
        place: Place,
    },
}

/// Which service to talk to.
#[derive(Debug, Clone, Args)]
pub struct Connect {
    /// The service's address, http:// only; absent: where the configuration lets it listen, or that of the embedded
    /// service.
    #[arg(long, value_name = "URL", conflicts_with_all = ["data_dir", "config"])]
    pub url: Option<String>,
    /// The API key; better in TOLLGATE_KEY, where other users of this machine cannot see it.
    #[arg(long, value_name = "KEY", value_parser = NonEmptyStringValueParser::new())]
    pub key: Option<String>,
    /// The embedded service's directory; absent: `.tollgate` if it exists and no servers are configured.
    #[arg(long, value_name = "DIR", conflicts_with = "config")]
    pub data_dir: Option<PathBuf>,
}

/// `policy …`.
#[derive(Debug, Subcommand)]
pub enum PolicyCommand {
    /// Show what applying a file would change.
    Diff {
        /// The policy file (TOML).
        file: PathBuf,
        /// Also delete what the file, or a list in it, does not name.
        #[arg(long, value_enum, value_name = "KIND")]
        prune: Vec<Prune>,
        /// Which service.
        #[command(flatten)]
        connect: Connect,
    },
    /// Create and change what a file names, all of it or nothing; nothing is deleted without --prune.
    Apply {
        /// The policy file (TOML).
        file: PathBuf,
        /// Also delete what the file, or a list in it, does not name. Tenants are never deleted.
        #[arg(long, value_enum, value_name = "KIND")]
        prune: Vec<Prune>,
        /// Do not ask.
        #[arg(long)]
        yes: bool,
        /// Which service.
        #[command(flatten)]
        connect: Connect,
    },
    /// Show whom a file would have refused, by limit, tenant and hour: recorded decisions of sampled tenants are
    /// decided again under it. Nothing is changed.
    Test {
        /// The policy file (TOML).
        file: PathBuf,
        /// From when: an instant (RFC 3339), or so long ago, such as 24h or 7d. At most a week is recorded.
        #[arg(long, value_name = "WHEN", value_parser = instant_or_ago)]
        since: Timestamp,
        /// Until when, exclusive, likewise; absent: until now.
        #[arg(long, value_name = "WHEN", value_parser = instant_or_ago)]
        until: Option<Timestamp>,
        /// Only this tenant; may be given several times. Absent: all that are sampled.
        #[arg(long, value_name = "ID")]
        tenant: Vec<TenantId>,
        /// As for `apply`: leave out what the file, or a list in it, does not name.
        #[arg(long, value_enum, value_name = "KIND")]
        prune: Vec<Prune>,
        /// Which service.
        #[command(flatten)]
        connect: Connect,
    },
    /// Print the whole policy as a file that `apply` takes.
    Export {
        /// Which service.
        #[command(flatten)]
        connect: Connect,
    },
}

/// `key …`.
#[derive(Debug, Subcommand)]
pub enum KeyCommand {
    /// Make a key and show it once.
    Create {
        /// Its name, for people.
        #[arg(long, value_parser = NonEmptyStringValueParser::new())]
        name: String,
        /// What it may do.
        #[arg(long, value_enum)]
        role: KeyRole,
        /// The only tenant it may touch.
        #[arg(long)]
        tenant: Option<TenantId>,
        /// When it stops working (RFC 3339).
        #[arg(long, value_name = "INSTANT", value_parser = instant)]
        expires_at: Option<Timestamp>,
        /// Which service.
        #[command(flatten)]
        connect: Connect,
    },
    /// List all keys, without their secrets.
    List {
        /// Which service.
        #[command(flatten)]
        connect: Connect,
    },
    /// Make a key in the place of another one, which goes on working for a while; the new one is shown once.
    Rotate {
        /// The old key's id.
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        id: String,
        /// How long the old key goes on working, in seconds.
        #[arg(long, value_name = "SECONDS", default_value_t = 86_400)]
        overlap_seconds: u32,
        /// When the new key stops working (RFC 3339).
        #[arg(long, value_name = "INSTANT", value_parser = instant)]
        expires_at: Option<Timestamp>,
        /// Which service.
        #[command(flatten)]
        connect: Connect,
    },
    /// Stop a key from working, everywhere within a second.
    Revoke {
        /// The key's id.
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        id: String,
        /// Do not ask.
        #[arg(long)]
        yes: bool,
        /// Which service.
        #[command(flatten)]
        connect: Connect,
    },
}

/// What a key may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum KeyRole {
    /// Everything.
    Admin,
    /// Every GET; grants, adjustments and comparisons with suppliers' bills.
    Finance,
    /// Gate calls and reads.
    Service,
    /// Reads of its own tenant, and its upgrade requests.
    Tenant,
}

impl KeyRole {
    /// The word of the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::Finance => "finance",
            Self::Service => "service",
            Self::Tenant => "tenant",
        }
    }
}

/// `job …`.
#[derive(Debug, Subcommand)]
pub enum JobCommand {
    /// Show when each job is due and what its last run ended with.
    List {
        /// Which service.
        #[command(flatten)]
        connect: Connect,
    },
    /// Run a job now and wait until it has ended; exit code 1 when it failed or has not ended in time. Needs an admin's
    /// key.
    Run {
        /// The job's name, as the list shows it.
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        name: String,
        /// The instant as of which to run (RFC 3339), for jobs that take one.
        #[arg(long, value_name = "INSTANT", value_parser = instant)]
        at: Option<Timestamp>,
        /// Say only what would be done, for jobs that change books.
        #[arg(long)]
        dry_run: bool,
        /// How long to wait for the end of the run, which goes on afterwards.
        #[arg(long, value_name = "SECONDS", default_value = "600")]
        wait_seconds: u64,
        /// Which service.
        #[command(flatten)]
        connect: Connect,
    },
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definition_is_sound() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn what_is_not_served_is_refused_as_unknown() {
        let exit =
            |line: &str| Arguments::try_parse_from(line.split(' ')).map(|_| ()).map_err(|e| e.exit_code());
        for line in [
            "tollgate job stop close",
            "tollgate redrain",
            "tollgate policy apply p.toml --prune tenants",
            "tollgate report weather",
            "tollgate up --fast",
        ] {
            assert_eq!(exit(line), Err(2), "{line}");
        }
    }

    #[test]
    fn a_test_clock_starts_now_or_where_it_is_told() {
        let start = |line: &str| match Arguments::try_parse_from(line.split(' ')).unwrap().command {
            Command::Up(up) => up.test_clock,
            other => panic!("{other:?}"),
        };
        assert_eq!(start("tollgate up"), None);
        assert!(start("tollgate up --test-clock").is_some());
        let given = "2026-01-31T22:59:59Z";
        assert_eq!(start(&format!("tollgate up --test-clock {given}")), Some(given.parse().unwrap()));
    }
}
