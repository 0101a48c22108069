//! Builds, starts and stops everything.

mod archive;
mod demo;
mod doctor;
mod installation;
mod instance_observer;
mod operator;
mod options;
mod parked;
mod running;
mod serve;
mod up;

pub use archive::{DetachMonths, detach, verify_archive};
pub use doctor::{Finding, Verdict, doctor};
pub use installation::{DEFAULT_DATA_DIR, InstallationError, Servers, Target, say_installation};
pub use operator::{inspect, quarantine, status, unbilled, verify};
pub use options::{
    CheckLine, MonthLine, ParkedAction, ParkedLine, ParkedReport, QuarantineAction, QuarantineLine, Role,
    ServeOptions, UpOptions, VerifyReport,
};
pub use parked::parked;
pub use running::{App, AppError};
pub use serve::{config_check, migrate, serve};
pub use up::{SERVICE_FILE, up};
