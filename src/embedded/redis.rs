//! A private Redis: append-only file on, nothing evicted, reached over a Unix socket.

use std::{
    fmt, fs,
    io::{BufRead, BufReader, Write},
    net::{Ipv4Addr, TcpListener},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use nix::sys::signal::Signal;

use super::{
    EmbeddedError,
    error::FileContext,
    leftovers,
    place::{SocketDirectory, create_directory, last_lines, open_log, percent_encoded},
    process::{ServerProcess, wait_until},
    programs,
};

const NAME: &str = "Redis";
const SOCKET: &str = "redis.sock";
/// How long a start may take; loading a long append-only file is part of it.
const START_PATIENCE: Duration = Duration::from_secs(60);
const STOP_PATIENCE: Duration = Duration::from_secs(10);
const ANSWER_PATIENCE: Duration = Duration::from_secs(2);
/// Another process may take a free port between our look and the server's bind.
const PORT_ATTEMPTS: usize = 5;

/// When Redis forces its append-only file to disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Appendfsync {
    /// Once a second: a dying host may lose a second or two of acknowledged writes.
    Everysec,
    /// Before each answer.
    Always,
    /// Whenever the system likes.
    No,
}

impl fmt::Display for Appendfsync {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Everysec => "everysec",
            Self::Always => "always",
            Self::No => "no",
        })
    }
}

/// What a private Redis is to be like.
#[derive(Debug, Clone)]
pub struct RedisOptions {
    /// Its directory: data, log and (if the path is short enough) socket. Made if missing.
    pub directory: PathBuf,
    /// When writes reach the disk.
    pub appendfsync: Appendfsync,
    /// Cluster mode: one node that owns every slot, also reached over TCP on a free port of the loopback.
    pub cluster: bool,
    /// Further settings, as (name, value) of redis.conf.
    pub settings: Vec<(String, String)>,
}

impl RedisOptions {
    /// The usual one: `everysec`, no cluster.
    #[must_use]
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self {
            directory: directory.into(),
            appendfsync: Appendfsync::Everysec,
            cluster: false,
            settings: Vec::new(),
        }
    }
}

/// A private Redis, child of this process: dropping it kills it, and it does not outlive us.
#[derive(Debug)]
pub struct EmbeddedRedis {
    process: ServerProcess,
    port: Option<u16>,
    options: RedisOptions,
    socket_directory: SocketDirectory,
}

impl EmbeddedRedis {
    /// Starts the server and waits until it answers. Blocks. What a killed run left in the directory is ended first.
    ///
    /// # Errors
    /// Redis is not installed, the directory cannot be used, or the server does not come up (with the end of its log).
    pub fn start(options: RedisOptions) -> Result<Self, EmbeddedError> {
        let directory = create_directory(&options.directory)?;
        let options = RedisOptions { directory, ..options };
        let program = programs::redis_server()?;
        end_leftovers(&program, &options.directory)?;
        let socket_directory = SocketDirectory::create(NAME, &options.directory, SOCKET, None)?;
        let (process, port) = launch(&program, &options, socket_directory.path())?;
        Ok(Self { process, port, options, socket_directory })
    }

    /// Ends the server in order (SIGTERM: it writes what it has and leaves); after ten seconds it is killed.
    ///
    /// # Errors
    /// A signal could not be sent.
    pub fn stop(&mut self) -> Result<(), EmbeddedError> {
        self.stop_within(STOP_PATIENCE)
    }

    /// As [`Self::stop`]; killed if it has not ended within `patience`.
    pub(super) fn stop_within(&mut self, patience: Duration) -> Result<(), EmbeddedError> {
        self.process.stop(Signal::SIGTERM, patience)
    }

    /// Ends the server if it runs, and starts it on the same data and socket; in cluster mode the port may change.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn restart(&mut self) -> Result<(), EmbeddedError> {
        self.stop()?;
        let program = programs::redis_server()?;
        (self.process, self.port) = launch(&program, &self.options, self.socket_directory.path())?;
        Ok(())
    }

    /// Kills the server at once (SIGKILL).
    ///
    /// # Errors
    /// The signal could not be sent.
    pub fn kill9(&mut self) -> Result<(), EmbeddedError> {
        self.process.kill()
    }

    /// Freezes the server (SIGSTOP): it takes connections and answers nothing.
    ///
    /// # Errors
    /// The signal could not be sent.
    pub fn pause(&self) -> Result<(), EmbeddedError> {
        self.process.pause()
    }

    /// Lets a frozen server go on (SIGCONT).
    ///
    /// # Errors
    /// The signal could not be sent.
    pub fn resume(&self) -> Result<(), EmbeddedError> {
        self.process.resume()
    }

    /// The URL for a client: over the socket, or over TCP in cluster mode.
    #[must_use]
    pub fn url(&self) -> String {
        match self.port {
            Some(port) => format!("redis://127.0.0.1:{port}/"),
            None => format!("redis+unix://{}", percent_encoded(&self.socket(), b"/")),
        }
    }

    /// The socket's path.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.socket_directory.path().join(SOCKET)
    }

    /// The server's directory, as a canonical path.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.options.directory
    }

    /// The server's process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.process.id()
    }
}

fn end_leftovers(program: &Path, directory: &Path) -> Result<(), EmbeddedError> {
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    leftovers::end_all(NAME, &name, directory, Signal::SIGTERM)
}

fn launch(
    program: &Path,
    options: &RedisOptions,
    socket_directory: &Path,
) -> Result<(ServerProcess, Option<u16>), EmbeddedError> {
    if !options.cluster {
        return Ok((launch_once(program, options, socket_directory, None)?, None));
    }
    let mut attempt = 1;
    loop {
        let (port, bus_port) = free_ports().doing("find a free port for", &options.directory)?;
        match launch_once(program, options, socket_directory, Some((port, bus_port))) {
            Err(EmbeddedError::NotReady { .. }) if attempt < PORT_ATTEMPTS => attempt += 1,
            launched => return Ok((launched?, Some(port))),
        }
    }
}

fn launch_once(
    program: &Path,
    options: &RedisOptions,
    socket_directory: &Path,
    ports: Option<(u16, u16)>,
) -> Result<ServerProcess, EmbeddedError> {
    let socket = socket_directory.join(SOCKET);
    if socket.exists() {
        fs::remove_file(&socket).doing("remove", &socket)?;
    }
    let log = options.directory.join("redis.log");
    let output = open_log(&log)?;
    let mut command = Command::new(program);
    command
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(output.try_clone().doing("open", &log)?)
        .stderr(output);
    for (name, value) in settings(options, ports) {
        command.arg(format!("--{name}")).arg(value);
    }
    command.arg("--unixsocket").arg(&socket).arg("--dir").arg(&options.directory);
    let mut process = ServerProcess::spawn(NAME, command, Signal::SIGTERM)?;
    let cluster = ports.is_some();
    let mut seen = "no answer in time".to_owned();
    let ready = wait_until(START_PATIENCE, || {
        if let Some(status) = process.exit_status() {
            seen = format!("it ended with {status}");
            return true;
        }
        is_ready(&socket, cluster)
    });
    if ready && process.exit_status().is_none() {
        return Ok(process);
    }
    Err(EmbeddedError::NotReady { server: NAME, reason: seen, last_lines: last_lines(&log), log })
}

/// The settings, as (name, value) of redis.conf.
fn settings(options: &RedisOptions, ports: Option<(u16, u16)>) -> Vec<(String, String)> {
    let mut settings: Vec<(String, String)> = [
        ("appendonly", "yes"),
        ("save", ""),
        ("maxmemory-policy", "noeviction"),
        ("daemonize", "no"),
        ("unixsocketperm", "700"),
        ("bind", "127.0.0.1"),
        // Its command line keeps naming its directory: that is how a leftover is recognised.
        ("set-proc-title", "no"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .to_vec();
    settings.push(("appendfsync".to_owned(), options.appendfsync.to_string()));
    let port = ports.map_or(0, |(port, _)| port);
    settings.push(("port".to_owned(), port.to_string()));
    if let Some((_, bus_port)) = ports {
        settings.push(("cluster-enabled".to_owned(), "yes".to_owned()));
        settings.push(("cluster-port".to_owned(), bus_port.to_string()));
    }
    settings.extend(options.settings.iter().cloned());
    settings
}

/// Asks the server whether it serves; a new cluster node is given every slot on the way.
fn is_ready(socket: &Path, cluster: bool) -> bool {
    let answer = |command: &str| ask(socket, command).unwrap_or_default();
    if answer("PING") != "+PONG" {
        return false;
    }
    if !cluster {
        return true;
    }
    // Refused on a node that owns its slots already: then its state is what counts.
    answer("CLUSTER ADDSLOTSRANGE 0 16383");
    // Answered with an error until every slot is served.
    answer("GET tollgate") == "$-1"
}

/// Sends one inline command and returns the first line of the answer.
fn ask(socket: &Path, command: &str) -> std::io::Result<String> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(ANSWER_PATIENCE))?;
    stream.write_all(format!("{command}\r\n").as_bytes())?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    Ok(line.trim_end().to_owned())
}

/// Two ports that are free now: for clients and for the cluster bus.
fn free_ports() -> std::io::Result<(u16, u16)> {
    let probe = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    let (first, second) = (probe()?, probe()?);
    Ok((first.local_addr()?.port(), second.local_addr()?.port()))
}
