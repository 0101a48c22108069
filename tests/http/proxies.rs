//! Callers behind a trusted proxy are distinguished.

use reqwest::Method;

use crate::support::app::*;

/// More than an address may try in a row.
const TRIES: usize = 110;

const PROXY: [u8; 4] = [127, 0, 0, 20];
const STRANGER: [u8; 4] = [127, 0, 0, 21];

async fn behind_a_proxy() -> TestApp {
    an_app().with("http.trusted_proxies", "127.0.0.20/32, 10.0.0.0/8").start().await
}

/// Tries a bad key, as forwarded with this header; answers with the status.
async fn try_key(from: &Caller, header: &str, value: &str) -> u16 {
    let request = from.with_key(Some("bad")).request(Method::GET, "/v1/admin/plans").header(header, value);
    from.send(request).await.status
}

/// Whether it has to wait. One try a second is heard, which may be this one.
async fn waits(from: &Caller, header: &str, value: &str) -> bool {
    for _ in 0..5 {
        if try_key(from, header, value).await == 429 {
            return true;
        }
    }
    false
}

#[tokio::test]
async fn one_caller_behind_a_trusted_proxy_does_not_make_the_others_wait() {
    let app = behind_a_proxy().await;
    let proxy = app.caller().at_address(PROXY);
    for number in 0..TRIES {
        let forged = format!("198.51.100.{number}, 203.0.113.7, 10.0.0.1");
        try_key(&proxy, "x-forwarded-for", &forged).await;
    }
    assert!(waits(&proxy, "x-forwarded-for", "203.0.113.7").await, "whatever it claims before that");
    assert!(waits(&proxy, "forwarded", "for=203.0.113.7;proto=https").await);
    assert_eq!(try_key(&proxy, "x-forwarded-for", "203.0.113.8").await, 401);
    assert_eq!(try_key(&proxy, "forwarded", "for=\"[2001:db8::1]:4711\"").await, 401);
    app.finish().await;
}

#[tokio::test]
async fn only_trusted_proxies_say_where_a_call_came_from() {
    let app = behind_a_proxy().await;
    let stranger = app.caller().at_address(STRANGER);
    for number in 0..TRIES {
        try_key(&stranger, "x-forwarded-for", &format!("203.0.113.{number}")).await;
    }
    assert!(waits(&stranger, "x-forwarded-for", "203.0.113.200").await);
    app.finish().await;
}
