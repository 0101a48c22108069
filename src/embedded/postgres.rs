//! A private Postgres: one cluster in one directory, reached over a Unix socket only.
//!
//! Postgres refuses to run as root. Started by root, it runs as `postgres` (or `nobody`), and its data belong to that
//! user. The directories above may stay closed to it: it reaches its own by a descriptor that it inherits.

use std::{
    ffi::OsString,
    fs,
    fs::File,
    io::{Read, Write},
    os::{
        fd::AsRawFd,
        unix::{net::UnixStream, process::CommandExt},
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use nix::{
    fcntl::{FcntlArg, FdFlag, fcntl},
    sys::signal::Signal,
    unistd::User,
};

use super::{
    EmbeddedError,
    error::FileContext,
    leftovers,
    place::{
        SocketDirectory, create_directory, create_private, last_lines, open_log, percent_encoded, server_user,
    },
    process::{ServerProcess, run_to_end, wait_until},
    programs,
};

const NAME: &str = "Postgres";
/// Only a part of the socket's file name: no TCP port is opened.
const PORT: u16 = 54320;
const SOCKET: &str = ".s.PGSQL.54320";
/// The superuser and the database.
const OWNER: &str = "tollgate";
const INITDB_ARGUMENTS: [&str; 6] = [
    "--username=tollgate",
    "--encoding=UTF8",
    "--locale=C",
    "--auth-local=trust",
    "--auth-host=reject",
    "--no-instructions",
];
/// How long a start may take; recovery after a crash is part of it.
const START_PATIENCE: Duration = Duration::from_secs(60);
const STOP_PATIENCE: Duration = Duration::from_secs(30);
const ANSWER_PATIENCE: Duration = Duration::from_secs(2);

/// Options of a private Postgres.
#[derive(Debug, Clone)]
pub struct PostgresOptions {
    /// Its directory: data, log and (if it is short and open enough) socket. Made if missing.
    pub directory: PathBuf,
    /// Whether commits reach the disk. `false` is for tests only: a dying host destroys the data.
    pub durable: bool,
    /// How many sessions may be open at once.
    pub connections_max: u16,
    /// Further settings, as (name, value) of postgresql.conf.
    pub settings: Vec<(String, String)>,
}

impl PostgresOptions {
    /// The defaults: durable, a hundred sessions.
    #[must_use]
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self { directory: directory.into(), durable: true, connections_max: 100, settings: Vec::new() }
    }
}

/// A private Postgres, child of this process: dropping it kills it, and it does not outlive us.
#[derive(Debug)]
pub struct EmbeddedPostgres {
    process: ServerProcess,
    cluster: Cluster,
    options: PostgresOptions,
    socket_directory: SocketDirectory,
}

/// The data directory and how its user reaches it.
#[derive(Debug)]
struct Cluster {
    programs: PathBuf,
    data: PathBuf,
    log: PathBuf,
    user: Option<User>,
}

impl EmbeddedPostgres {
    /// Starts the server and waits until it answers; the first time, makes its cluster and the database `tollgate`.
    /// Blocks. What a killed run left in the directory is ended first.
    ///
    /// # Errors Postgres is not installed, the directory cannot be used, or the server does not start (with the end of
    /// its log).
    pub fn start(options: PostgresOptions) -> Result<Self, EmbeddedError> {
        let directory = create_directory(&options.directory)?;
        let options = PostgresOptions { directory, ..options };
        let cluster = Cluster::find(&options.directory)?;
        leftovers::end_all(NAME, "postgres", &cluster.data, Signal::SIGQUIT)?;
        if !cluster.data.exists() {
            cluster.initialise(options.durable)?;
        }
        let socket_directory =
            SocketDirectory::create(NAME, &options.directory, SOCKET, cluster.user.as_ref())?;
        let process = cluster.launch(&options, socket_directory.path())?;
        Ok(Self { process, cluster, options, socket_directory })
    }

    /// Ends the server in order (SIGINT: sessions are cut, everything is written); after thirty seconds it is killed.
    ///
    /// # Errors
    /// A signal could not be sent.
    pub fn stop(&mut self) -> Result<(), EmbeddedError> {
        self.stop_within(STOP_PATIENCE)
    }

    /// As [`Self::stop`]; killed if it has not ended within `patience`.
    pub(super) fn stop_within(&mut self, patience: Duration) -> Result<(), EmbeddedError> {
        self.process.stop(Signal::SIGINT, patience)
    }

    /// Ends the server if it runs, and starts it on the same data and socket.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn restart(&mut self) -> Result<(), EmbeddedError> {
        self.stop()?;
        leftovers::end_all(NAME, "postgres", &self.cluster.data, Signal::SIGQUIT)?;
        self.process = self.cluster.launch(&self.options, self.socket_directory.path())?;
        Ok(())
    }

    /// Kills the server and all its sessions at once (SIGKILL).
    ///
    /// # Errors
    /// The signal could not be sent.
    pub fn kill9(&mut self) -> Result<(), EmbeddedError> {
        self.process.kill()
    }

    /// Freezes the server and all its sessions (SIGSTOP).
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

    /// The URL of the database `tollgate`, for its owner.
    #[must_use]
    pub fn url(&self) -> String {
        self.url_of(OWNER)
    }

    /// The URL of another database of this server.
    #[must_use]
    pub fn url_of(&self, database: &str) -> String {
        let host = percent_encoded(self.socket_directory.path(), b"");
        format!("postgresql://{OWNER}@{host}:{PORT}/{database}")
    }

    /// The directory of the socket, as `psql --host` takes it (with `--port 54320`).
    #[must_use]
    pub fn socket_directory(&self) -> &Path {
        self.socket_directory.path()
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

impl Cluster {
    fn find(directory: &Path) -> Result<Self, EmbeddedError> {
        let data = directory.join("data");
        let version = fs::read_to_string(data.join("PG_VERSION")).ok();
        let programs = programs::postgres_directory(version.as_deref().map(str::trim_end))?;
        Ok(Self { programs, data, log: directory.join("postgres.log"), user: server_user()? })
    }

    /// Makes the cluster beside its final place, so that an interrupted one is never taken for a whole one.
    fn initialise(&self, durable: bool) -> Result<(), EmbeddedError> {
        let unfinished = self.data.with_extension("unfinished");
        if unfinished.exists() {
            leftovers::end_all(NAME, "postgres", &unfinished, Signal::SIGQUIT)?;
            fs::remove_dir_all(&unfinished).doing("remove", &unfinished)?;
        }
        create_private(&unfinished, self.user.as_ref())?;
        let arguments: Vec<&str> =
            INITDB_ARGUMENTS.into_iter().chain((!durable).then_some("--no-sync")).collect();
        self.set_up("initdb", &unfinished, &arguments, "")?;
        let create = format!("CREATE DATABASE {OWNER};\n");
        self.set_up("postgres", &unfinished, &["--single", "postgres"], &create)?;
        fs::rename(&unfinished, &self.data).doing("rename", &unfinished)
    }

    fn set_up(
        &self,
        program: &str,
        data: &Path,
        arguments: &[&str],
        input: &str,
    ) -> Result<(), EmbeddedError> {
        let status = run_to_end(self.command(program, data, arguments)?, input)?;
        if status.success() { Ok(()) } else { Err(self.not_ready(format!("{program} ended with {status}"))) }
    }

    fn launch(&self, options: &PostgresOptions, sockets: &Path) -> Result<ServerProcess, EmbeddedError> {
        // We hold the directory and no process works in it, but the ids in these files may belong to other processes
        // now.
        for stale in
            [self.data.join("postmaster.pid"), sockets.join(SOCKET), sockets.join(format!("{SOCKET}.lock"))]
        {
            if stale.exists() {
                fs::remove_file(&stale).doing("remove", &stale)?;
            }
        }
        let mut command = self.command("postgres", &self.data, &[])?;
        command.stdin(Stdio::null());
        for (name, value) in settings(options, sockets) {
            command.arg("-c").arg(format!("{name}={value}"));
        }
        let mut marker = OsString::from(leftovers::DIRECTORY_SETTING);
        marker.push(&self.data);
        command.arg("-c").arg(marker);
        let mut process = ServerProcess::spawn(NAME, command, Signal::SIGQUIT)?;
        let mut seen = "no answer in time".to_owned();
        let ready = wait_until(START_PATIENCE, || {
            if let Some(status) = process.exit_status() {
                seen = format!("it ended with {status}");
                return true;
            }
            is_ready(&sockets.join(SOCKET)).unwrap_or(false)
        });
        if ready && process.exit_status().is_none() { Ok(process) } else { Err(self.not_ready(seen)) }
    }

    /// A program of this installation that runs as the cluster's user on the directory `data`. `--single`, if it is
    /// the first of `arguments`, goes before the directory, as Postgres demands.
    fn command(&self, program: &str, data: &Path, arguments: &[&str]) -> Result<Command, EmbeddedError> {
        let output = open_log(&self.log)?;
        let mut command = Command::new(self.programs.join(program));
        command
            .env_clear()
            .env("LC_ALL", "C")
            .env("TZ", "UTC")
            .current_dir("/")
            .stdout(output.try_clone().doing("open", &self.log)?)
            .stderr(output);
        let directory = match &self.user {
            Some(user) => {
                command.uid(user.uid.as_raw()).gid(user.gid.as_raw());
                lend(&mut command, data)?
            }
            None => data.to_owned(),
        };
        let (first, rest) = arguments.split_at(usize::from(arguments.first() == Some(&"--single")));
        command.args(first).arg("-D").arg(directory).args(rest);
        Ok(command)
    }

    fn not_ready(&self, reason: String) -> EmbeddedError {
        EmbeddedError::NotReady {
            server: NAME,
            reason,
            log: self.log.clone(),
            last_lines: last_lines(&self.log),
        }
    }
}

/// The settings, as (name, value) of postgresql.conf.
fn settings(options: &PostgresOptions, sockets: &Path) -> Vec<(String, String)> {
    let durable = if options.durable { "on" } else { "off" };
    let mut settings: Vec<(String, String)> = [
        ("listen_addresses", ""),
        ("unix_socket_permissions", "0700"),
        ("timezone", "UTC"),
        ("log_timezone", "UTC"),
        ("fsync", durable),
        ("synchronous_commit", durable),
        ("full_page_writes", durable),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .to_vec();
    // A list of paths: quoted, because a comma or a space would end one.
    let quoted = format!("\"{}\"", sockets.to_string_lossy().replace('"', "\"\""));
    settings.push(("unix_socket_directories".to_owned(), quoted));
    settings.push(("port".to_owned(), PORT.to_string()));
    settings.push(("max_connections".to_owned(), options.connections_max.to_string()));
    settings.extend(options.settings.iter().cloned());
    settings
}

/// Hands `directory` to the program as an open descriptor and returns the path by which it reaches it, so that no
/// directory above needs to let its user pass.
#[allow(unsafe_code, reason = "pre_exec is where a descriptor is passed on to one child and to no other")]
fn lend(command: &mut Command, directory: &Path) -> Result<PathBuf, EmbeddedError> {
    if !Path::new("/proc/self/fd").exists() {
        return Ok(directory.to_owned());
    }
    let opened = File::open(directory).doing("open", directory)?;
    let path = PathBuf::from(format!("/proc/self/fd/{}", opened.as_raw_fd()));
    // SAFETY: one system call between fork and exec, async-signal-safe, nothing is allocated.
    unsafe {
        command.pre_exec(move || {
            fcntl(&opened, FcntlArg::F_SETFD(FdFlag::empty()))?;
            Ok(())
        });
    }
    Ok(path)
}

/// Asks the server for a session. It answers `R` (authentication) when it takes sessions, `E` while it starts.
fn is_ready(socket: &Path) -> std::io::Result<bool> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(ANSWER_PATIENCE))?;
    stream.write_all(&start_message())?;
    let mut answer = [0_u8];
    stream.read_exact(&mut answer)?;
    Ok(answer == *b"R")
}

/// Protocol 3.0: length, version, the session's user and database.
fn start_message() -> Vec<u8> {
    let parameters = format!("user\0{OWNER}\0database\0{OWNER}\0\0");
    let length = u32::try_from(parameters.len() + 8).unwrap_or(u32::MAX);
    [&length.to_be_bytes(), &[0, 3, 0, 0], parameters.as_bytes()].concat()
}
