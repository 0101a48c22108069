//! Requests whose ends two readers could see in different places are refused.

use crate::support::app::*;
use rstest::rstest;

#[rstest]
#[case("content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n")]
#[case("content-length: 2\r\ncontent-length: 3\r\n\r\n{}")]
#[case("content-length: +2\r\n\r\n{}")]
#[case("content-length: -2\r\n\r\n{}")]
#[case("transfer-encoding: chunked, identity\r\n\r\n{}")]
#[case("transfer-encoding: xchunked\r\n\r\n{}")]
#[case("transfer-encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n")]
#[tokio::test]
async fn an_ambiguous_body_is_refused(#[case] rest: &str) {
    let app = spawn_app().await;
    let head = "POST /v1/reservations HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";
    let key = format!("authorization: Bearer {}\r\n", app.key());
    let line = app.send_raw(format!("{head}{key}{rest}").as_bytes()).await;
    assert!(line.is_empty() || line.starts_with("HTTP/1.1 4"), "{line:?}");
    app.finish().await;
}

#[rstest]
#[case("GET /livez HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n")]
#[case("GET /livez HTTP/1.1\r\nhost: a\r\nx y: z\r\n\r\n")]
#[case("GET /livez HTTP/9.9\r\nhost: a\r\n\r\n")]
#[case("\0\0\0\0\r\n\r\n")]
#[tokio::test]
async fn a_malformed_head_is_refused(#[case] head: &str) {
    let app = spawn_app().await;
    let line = app.send_raw(head.as_bytes()).await;
    assert!(line.is_empty() || line.starts_with("HTTP/1.1 4"), "{line:?}");
    app.finish().await;
}
