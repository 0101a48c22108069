//! What becomes of a connection whose caller does not wait for its work to end: it is closed, and the server, which
//! looks every second whether its client is still there, ends the statement.

use std::ops::{Deref, DerefMut};

use diesel_async::AsyncPgConnection;
use diesel_async::pooled_connection::deadpool::Object;
use tokio::task::AbortHandle;
use tokio_postgres::Client;

use super::connection::discard;

/// A pooled connection while it does somebody's work. Dropped before the work has ended, it is closed: the next caller
/// that got it would wait for the statement that nobody wants any more.
#[derive(Default)]
pub(super) struct AtWork(Option<Object<AsyncPgConnection>>);

impl AtWork {
    /// Begins work on this connection.
    pub(super) fn begin(&mut self, connection: Object<AsyncPgConnection>) -> &mut AsyncPgConnection {
        self.0.insert(connection)
    }

    /// The work has ended, well or badly: the connection goes back to its pool.
    pub(super) fn end(mut self) {
        drop(self.0.take());
    }
}

impl Drop for AtWork {
    fn drop(&mut self) {
        if let Some(connection) = self.0.take() {
            discard(connection);
        }
    }
}

/// A connection outside the pools, which is closed with this handle, whatever its statement does.
pub(super) struct OwnClient {
    client: Client,
    driver: AbortHandle,
}

impl OwnClient {
    /// The client whose connection this task drives.
    pub(super) fn new(client: Client, driver: AbortHandle) -> Self {
        Self { client, driver }
    }
}

impl Deref for OwnClient {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

impl DerefMut for OwnClient {
    fn deref_mut(&mut self) -> &mut Client {
        &mut self.client
    }
}

impl Drop for OwnClient {
    fn drop(&mut self) {
        self.driver.abort();
    }
}
