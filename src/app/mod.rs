//! Builds, starts and stops everything.

mod bookkeeping;
mod demo;
mod operator;
mod options;
mod running;
mod serve;
mod up;

pub use operator::{quarantine, status, verify};
pub use options::{
    CheckLine, QuarantineAction, QuarantineLine, Role, ServeOptions, Target, UpOptions, VerifyReport,
};
pub use running::{App, AppError};
pub use serve::{config_check, migrate, serve};
pub use up::up;
