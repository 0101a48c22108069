//! What the command line passes to the app.

use std::net::SocketAddr;
use std::path::PathBuf;

use crate::domain::ids::{OutboxId, Partition};
use crate::operations::ConflictChoice;

/// What `tollgate up` needs.
#[derive(Debug, Clone)]
pub struct UpOptions {
    /// Where the private servers keep their data.
    pub data_dir: PathBuf,
    /// Where http listens; absent: as configured.
    pub listen: Option<SocketAddr>,
    /// Where the test clock starts; absent: the real clock.
    pub test_clock: Option<jiff::Timestamp>,
    /// The environment's configuration file.
    pub config: Option<PathBuf>,
    /// Whether the demo policy is left out.
    pub no_demo: bool,
}

/// A part of the service that an instance may run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Answers calls.
    Http,
    /// Books events.
    Writer,
    /// Runs the work that time triggers.
    Jobs,
}

/// What `tollgate serve` needs.
#[derive(Debug, Clone)]
pub struct ServeOptions {
    /// The environment's configuration file.
    pub config: Option<PathBuf>,
    /// What this instance runs.
    pub roles: Vec<Role>,
    /// Where http listens; absent: as configured.
    pub listen: Option<SocketAddr>,
    /// Where the test clock starts; absent: the real clock.
    pub test_clock: Option<jiff::Timestamp>,
}

/// What `verify` found.
#[derive(Debug, Clone, Default)]
pub struct VerifyReport {
    /// One line per check.
    pub checks: Vec<CheckLine>,
    /// Worth attention, but no fault: gaps, open quarantine.
    pub warnings: Vec<String>,
    /// No fault, but needed to read the figures.
    pub notes: Vec<String>,
}

/// One check of the books.
#[derive(Debug, Clone)]
pub struct CheckLine {
    /// What was checked.
    pub name: String,
    /// How many things were looked at.
    pub checked: u64,
    /// What is wrong, by name.
    pub faults: Vec<String>,
    /// Why it was skipped.
    pub skipped: Option<String>,
}

/// A month of entries, and what became of it.
#[derive(Debug, Clone)]
pub struct MonthLine {
    /// As `2026-01`, in UTC.
    pub month: String,
    /// How many entries it has.
    pub entries: u64,
    /// How many of them stay in the books.
    pub kept: u64,
    /// The manifest of its file, once it has left.
    pub manifest: Option<String>,
    /// Why it may not leave yet.
    pub waits: Option<String>,
}

/// What to do with events that could not be booked.
#[derive(Debug, Clone)]
pub enum QuarantineAction {
    /// Show the open ones.
    List,
    /// Book one again.
    Retry {
        /// Its partition.
        partition: Partition,
        /// Its place in the outbox.
        event: OutboxId,
    },
    /// Discard one for good.
    Discard {
        /// Its partition.
        partition: Partition,
        /// Its place in the outbox.
        event: OutboxId,
        /// Why, for the audit log.
        reason: String,
    },
}

/// An event in quarantine, after the action.
#[derive(Debug, Clone)]
pub struct QuarantineLine {
    /// Its partition.
    pub partition: Partition,
    /// Its place in the outbox.
    pub event: OutboxId,
    /// The reservation it is about, where it could be read.
    pub reservation: Option<String>,
    /// Why it could not be booked.
    pub reason: String,
    /// `open`, `resolved` or `discarded`.
    pub status: String,
}

/// What to do with parked calls that the gate will never take.
#[derive(Debug, Clone)]
pub enum ParkedAction {
    /// Show them.
    List,
    /// Settle one for good.
    Resolve {
        /// Its number.
        number: i64,
        /// How.
        choice: ConflictChoice,
        /// Why, for the audit log.
        reason: String,
    },
}

/// The result of an action on parked calls.
#[derive(Debug, Clone)]
pub struct ParkedReport {
    /// The calls still in conflict.
    pub conflicts: Vec<ParkedLine>,
    /// The usage booked now for the settled call, a sentence for each meter.
    pub booked: Vec<String>,
}

/// A parked call that the gate will never take.
#[derive(Debug, Clone)]
pub struct ParkedLine {
    /// Its number.
    pub number: i64,
    /// Its tenant.
    pub tenant: String,
    /// Of which reservation.
    pub reservation: String,
    /// `reserve`, `usage`, `consume` or `release`.
    pub call: String,
    /// When it was taken, RFC 3339.
    pub taken_at: String,
    /// What it said was used.
    pub said: String,
    /// What of that is not booked.
    pub missing: String,
    /// Why the gate does not take it.
    pub reason: String,
}
