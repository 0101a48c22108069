//! The command line: reads arguments, calls one thing, prints what it answered.
//!
//! Commands of the operator (`up`, `serve`, `verify`, …) call [`crate::app`]; those of policy, keys, jobs, reports
//! and `replay` talk to a running service over HTTP, so that they work from anywhere.

mod arguments;
mod client;
mod connection;
mod entries;
mod failure;
mod jobs;
mod keys;
mod local;
mod output;
mod parked;
mod policy;
mod problem;
mod prompt;
mod replay;
mod report;

use std::num::NonZero;
use std::process::ExitCode;
use std::time::Duration;

use clap::{CommandFactory, Parser};
use tokio::runtime::Builder;

pub use arguments::Arguments;
pub use failure::{Exit, Failure};
pub use output::{Format, Section, Table};
pub use replay::{Row, Trace, TraceFacts, job_key, tenant_number};

use arguments::Command;

/// How long background work may delay the end of the process.
const LEAVE_TIMEOUT: Duration = Duration::from_millis(250);

/// Runs the command that the process was started with and answers its exit code.
pub fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            // Nothing can be reported to a closed pipe.
            let _ = error.print();
            return if error.use_stderr() { Exit::Usage.into() } else { Exit::Success.into() };
        }
    };
    match run(arguments) {
        Ok(exit) => exit.into(),
        Err(failure) => {
            eprintln!("{failure}");
            failure.exit.into()
        }
    }
}

fn run(arguments: Arguments) -> Result<Exit, Failure> {
    let runtime = runtime(&arguments.command)
        .enable_all()
        .build()
        .map_err(|error| Failure::new(format!("no threads could be started: {error}")))?;
    let exit = runtime.block_on(dispatch(arguments));
    // A name look-up in a thread of its own may hang for a long time.
    runtime.shutdown_timeout(LEAVE_TIMEOUT);
    exit
}

/// What talks to a service waits most of the time: one thread does it, and leaves the others to a service beside it.
fn runtime(command: &Command) -> Builder {
    match command {
        Command::Policy(_) | Command::Key(_) | Command::Job(_) | Command::Report(_) | Command::Replay(_) => {
            Builder::new_current_thread()
        }
        _ => {
            let mut builder = Builder::new_multi_thread();
            let threads = std::thread::available_parallelism().map_or(2, NonZero::get);
            builder.worker_threads(threads).thread_name("tollgate");
            builder
        }
    }
}

async fn dispatch(arguments: Arguments) -> Result<Exit, Failure> {
    let Arguments { output, config, command } = arguments;
    match command {
        Command::Up(up) => local::up(up, config).await,
        Command::Serve(serve) => local::serve(serve, config).await,
        Command::Migrate => local::migrate(config, output).await,
        Command::Config(command) => local::config(command, config, output),
        Command::Status(place) => local::status(place, config, output).await,
        Command::Doctor { calls_per_second, place } => {
            local::doctor(calls_per_second, place, config, output).await
        }
        Command::Inspect { key, place } => local::inspect(&key, place, config, output).await,
        Command::Verify(verify) => local::verify(verify, config, output).await,
        Command::Entries(command) => entries::run(command, config, output).await,
        Command::Quarantine(command) => local::quarantine(command, config, output).await,
        Command::Parked(command) => parked::run(command, config, output).await,
        Command::Policy(command) => policy::run(command, config.as_deref(), output).await,
        Command::Key(command) => keys::run(command, config.as_deref(), output).await,
        Command::Job(command) => jobs::run(command, config.as_deref(), output).await,
        Command::Report(command) => report::run(command, config.as_deref(), output).await,
        Command::Replay(replay) => replay::run(replay, config.as_deref(), output).await,
        Command::Completion { shell } => {
            let mut text = Vec::new();
            clap_complete::generate(shell, &mut Arguments::command(), "tollgate", &mut text);
            output::print(&String::from_utf8_lossy(&text))?;
            Ok(Exit::Success)
        }
    }
}
