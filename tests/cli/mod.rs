//! The command line: what it prints, how it fails, and that a replay ends with exact figures.

mod commands;
mod end_to_end;
mod guarded_service;
mod inspect;
mod installation;
mod operator;
mod readme;
mod recipes;
mod replay;
mod service;
mod tables;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::support::process::tollgate;

fn run(command: &mut Command) -> (i32, String, String) {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (status.code().unwrap(), text(stdout), text(stderr))
}

pub fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/examples").join(name)
}

/// A loopback address where nobody listens.
fn deserted_url() -> String {
    "http://127.0.0.1:1".to_owned()
}
