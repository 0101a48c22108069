//! Connections as balancers keep them.

use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::app::*;

/// Longer than the five seconds after which many servers close.
const KEPT: Duration = Duration::from_secs(6);

#[tokio::test]
async fn a_kept_connection_is_closed_after_the_time_set_and_not_before() {
    let app = an_app().with("http.keep_alive_ms", KEPT.as_millis()).start().await;
    let mut connection = TcpStream::connect(app.url().trim_start_matches("http://")).await.unwrap();
    let began = Instant::now();
    connection.write_all(b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    while connection.read_buf(&mut answer).await.unwrap() > 0 {}
    let silent = began.elapsed();
    assert!(answer.starts_with(b"HTTP/1.1 200"), "{:?}", String::from_utf8_lossy(&answer));
    // The server's timers tick twice a second.
    assert!(silent + Duration::from_millis(600) >= KEPT, "closed after {silent:?}");
    app.finish().await;
}
