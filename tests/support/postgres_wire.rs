//! A proxy in front of a test's database that kills a process in the midst of what it does there.

use std::process::{Child, Command};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio_postgres::config::Host;

use super::process::PATIENCE;
use super::services::TestDatabase;
use super::wait::wait_for;

/// How the server names what a transaction, or a statement without one, has done where it has written.
const ENDS: [&[u8]; 4] = [b"COMMIT", b"INSERT", b"UPDATE", b"DELETE"];

/// When a process is killed, counted from one over all its connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// It asks for this commit, which does not reach the server.
    BeforeCommit(u64),
    /// This transaction has ended, or this statement without one, and the answer does not reach the process.
    AfterEnd(u64),
    /// Never.
    Never,
}

/// How many steps a process has taken.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Steps {
    /// Commits that it asked for.
    pub commits: u64,
    /// Transactions that ended, and statements without one that wrote.
    pub ends: u64,
}

impl Steps {
    /// Whether a process that took so many has reached this moment.
    pub fn reach(self, moment: Moment) -> bool {
        match moment {
            Moment::BeforeCommit(number) => self.commits >= number,
            Moment::AfterEnd(number) => self.ends >= number,
            Moment::Never => true,
        }
    }

    /// Those that both have taken.
    pub fn of_both(self, other: Self) -> Self {
        Self { commits: self.commits.min(other.commits), ends: self.ends.min(other.ends) }
    }
}

/// A process that reaches its database through a proxy. It is killed when this is dropped.
pub struct Watched {
    shared: Arc<Shared>,
}

struct Shared {
    moment: Moment,
    commits: AtomicU64,
    ends: AtomicU64,
    /// Connections to the server.
    open: AtomicU64,
    process: Mutex<Option<Child>>,
}

impl Watched {
    /// Starts the command, which finds this database behind the proxy.
    pub async fn start(mut command: Command, database: &TestDatabase, moment: Moment) -> Self {
        let config: tokio_postgres::Config = database.url.parse().unwrap();
        let [Host::Unix(directory)] = config.get_hosts() else { panic!("a test's Postgres has a socket") };
        let socket = directory.join(format!(".s.PGSQL.{}", config.get_ports()[0]));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (user, name) = (config.get_user().unwrap(), config.get_dbname().unwrap());
        let url = format!("postgresql://{user}@{}/{name}", listener.local_addr().unwrap());
        let [commits, ends, open] = [0; 3].map(AtomicU64::new);
        let shared = Arc::new(Shared { moment, commits, ends, open, process: Mutex::new(None) });
        let passing = shared.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let Ok(server) = UnixStream::connect(&socket).await else { return };
                pass_on(client, server, &passing);
            }
        });
        // What is to kill it waits until it is there.
        let mut process = shared.process.lock().unwrap();
        *process = Some(command.env("TOLLGATE__POSTGRES__URL", url).spawn().unwrap());
        drop(process);
        Self { shared }
    }

    /// Whether it has ended.
    pub fn is_over(&self) -> bool {
        let mut process = self.shared.process.lock().unwrap();
        process.as_mut().is_none_or(|process| process.try_wait().unwrap().is_some())
    }

    /// Kills it if it still runs, and waits until the server has ended all it did. Returns what that was.
    pub async fn end(&self) -> Steps {
        self.shared.kill();
        wait_for("the server has noticed", PATIENCE, async || {
            (self.shared.open.load(Ordering::SeqCst) == 0).then_some(())
        })
        .await;
        let [commits, ends] =
            [&self.shared.commits, &self.shared.ends].map(|count| count.load(Ordering::SeqCst));
        Steps { commits, ends }
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.shared.kill();
    }
}

impl Shared {
    fn kill(&self) {
        if let Some(process) = self.process.lock().unwrap().as_mut() {
            // It may be gone already.
            let _ = process.kill();
            process.wait().unwrap();
        }
    }

    fn asks_to_commit(&self) -> bool {
        self.moment == Moment::BeforeCommit(self.commits.fetch_add(1, Ordering::SeqCst) + 1)
    }

    fn ended(&self) -> bool {
        self.moment == Moment::AfterEnd(self.ends.fetch_add(1, Ordering::SeqCst) + 1)
    }
}

fn pass_on(client: TcpStream, server: UnixStream, shared: &Arc<Shared>) {
    let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
    let (asked, answered) = (shared.clone(), shared.clone());
    // A client's first message has no kind.
    let questions = Messages { bytes: Vec::new(), have_kinds: false };
    tokio::spawn(relay(from_client, to_server, questions, move |kind, body| {
        let is_moment = kind == b'Q' && body.starts_with(b"COMMIT") && asked.asks_to_commit();
        if is_moment {
            asked.kill();
        }
        is_moment
    }));
    shared.open.fetch_add(1, Ordering::SeqCst);
    tokio::spawn(async move {
        let mut has_written = false;
        let answers = Messages { bytes: Vec::new(), have_kinds: true };
        let is_moment = |kind, body: &[u8]| {
            match kind {
                b'C' if body.starts_with(b"ROLLBACK") => has_written = false,
                b'C' => has_written |= ENDS.iter().any(|tag| body.starts_with(tag)),
                // No transaction is open.
                b'Z' if body == b"I" && std::mem::take(&mut has_written) && answered.ended() => {
                    answered.kill();
                    return true;
                }
                _ => {}
            }
            false
        };
        relay(from_server, to_client, answers, is_moment).await;
        answered.open.fetch_sub(1, Ordering::SeqCst);
    });
}

/// Passes on what comes, up to the message at which `is_last` says so, and takes in the rest.
async fn relay(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut messages: Messages,
    mut is_last: impl FnMut(u8, &[u8]) -> bool,
) {
    let (mut bytes, mut is_over) = (vec![0; 1 << 16], false);
    while let Ok(read @ 1..) = from.read(&mut bytes).await {
        let whole = messages.whole(&bytes[..read]);
        is_over = is_over || whole.iter().any(|(kind, body)| is_last(*kind, body));
        is_over = is_over || to.write_all(&bytes[..read]).await.is_err();
    }
}

/// One direction of a connection, of which a message may come in parts.
struct Messages {
    bytes: Vec<u8>,
    /// Whether each message begins with its kind.
    have_kinds: bool,
}

impl Messages {
    /// The messages that are whole by now: their kind, and what follows their length.
    fn whole(&mut self, more: &[u8]) -> Vec<(u8, Vec<u8>)> {
        self.bytes.extend_from_slice(more);
        let mut whole = Vec::new();
        loop {
            let head = usize::from(self.have_kinds);
            let Some(length) = self.bytes.get(head..head + 4) else { return whole };
            let end = head + usize::try_from(u32::from_be_bytes(length.try_into().unwrap())).unwrap();
            if self.bytes.len() < end {
                return whole;
            }
            let message: Vec<u8> = self.bytes.drain(..end).collect();
            if std::mem::replace(&mut self.have_kinds, true) {
                whole.push((message[0], message[5..].to_vec()));
            }
        }
    }
}
