//! Notices of changed policy and keys, so that every instance knows them within a second.

use std::time::Duration;

use diesel::sql_types::{Array, Text};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use futures::StreamExt;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use tokio_postgres::{AsyncMessage, NoTls};

use super::prepared::sql_query;
use super::{Ledger, LedgerError};

/// Something changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notice {
    /// `meter`, `operation`, `limit`, `plan`, `tenant`, `key`, `gate_time`, `job`, `key_filters`, `load`, `estimates`;
    /// `parked` for calls of the tenant `id`, `adjusted` for its use, `subject` for an erased name of it.
    pub kind: String,
    /// Its id.
    pub id: String,
    /// Its new version; 0 where there is none.
    pub version: u64,
}

/// What a listener receives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Noticed {
    /// Something changed.
    Changed(Notice),
    /// The connection was made, for the first time or again: anything may have changed before.
    Connected,
}

/// A stream of notices. Dropping it closes its connection.
pub struct Notices {
    receiver: mpsc::Receiver<Noticed>,
}

impl Notices {
    /// The next one; none when the listener has ended for good.
    pub async fn next(&mut self) -> Option<Noticed> {
        self.receiver.recv().await
    }
}

const CHANNEL: &str = "tollgate_changes";
const WAITING_MAX: usize = 1_024;
const PAUSE: Duration = Duration::from_millis(500);

/// Notifies every listener of a change, once this transaction is committed.
pub(crate) async fn tell(
    connection: &mut AsyncPgConnection,
    kind: &str,
    id: &str,
    version: u64,
) -> Result<(), LedgerError> {
    tell_all(connection, vec![Notice { kind: kind.to_owned(), id: id.to_owned(), version }]).await
}

/// Notifies every listener of changes, once this transaction is committed.
pub(crate) async fn tell_all(
    connection: &mut AsyncPgConnection,
    notices: Vec<Notice>,
) -> Result<(), LedgerError> {
    let texts: Result<Vec<String>, _> = notices.iter().map(serde_json::to_string).collect();
    let texts = texts.map_err(|error| LedgerError::Damaged(error.to_string()))?;
    sql_query(include_str!("sql/notify.sql"))
        .bind::<Text, _>(CHANNEL)
        .bind::<Array<Text>, _>(texts)
        .execute(connection)
        .await?;
    Ok(())
}

impl Ledger {
    /// Listens on a connection of its own and reconnects whenever that ends. Ends when the stream is dropped.
    pub fn listen(url: &str) -> Notices {
        let (sender, receiver) = mpsc::channel(WAITING_MAX);
        let url = url.to_owned();
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    () = sender.closed() => return,
                    // It reconnects however the connection ended; the listener then reads everything again.
                    _ = listen_once(&url, &sender) => {}
                }
                tokio::select! {
                    () = sender.closed() => return,
                    () = tokio::time::sleep(PAUSE) => {}
                }
            }
        });
        Notices { receiver }
    }
}

async fn listen_once(url: &str, sender: &mpsc::Sender<Noticed>) -> Result<(), tokio_postgres::Error> {
    let (client, mut connection) = tokio_postgres::connect(url, NoTls).await?;
    let mut messages = futures::stream::poll_fn(move |context| connection.poll_message(context));
    let begun = async {
        client.batch_execute(&format!("LISTEN {CHANNEL}")).await?;
        // When the receiver is gone, the loop around this call ends.
        let _ = sender.send(Noticed::Connected).await;
        std::future::pending::<Result<(), tokio_postgres::Error>>().await
    };
    let notices = async {
        while let Some(message) = messages.next().await {
            if let AsyncMessage::Notification(notification) = message?
                && let Ok(notice) = serde_json::from_str(notification.payload())
            {
                let _ = sender.send(Noticed::Changed(notice)).await;
            }
        }
        Ok(())
    };
    tokio::select! {
        result = begun => result,
        result = notices => result,
    }
}
