//! The example of a service that asks before it serves a call, as middleware of actix-web and of tower.

use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use crate::support::app::*;
use guard::Guard;

#[path = "../../examples/guarded_service/actix.rs"]
mod actix;
#[path = "../../examples/guarded_service/guard.rs"]
mod guard;
#[path = "../../examples/guarded_service/service.rs"]
mod service;
#[path = "../../examples/guarded_service/tower.rs"]
mod tower;

/// Starts both services behind this guard; where they are.
fn served(guard: Guard) -> [String; 2] {
    let guard = Arc::new(guard);
    let bound = || {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/search/books", listener.local_addr().unwrap());
        (listener, url)
    };
    let ((actix, actix_url), (axum, axum_url)) = (bound(), bound());
    tokio::spawn(service::with_actix(actix, guard.clone()));
    tokio::spawn(service::with_axum(axum, guard));
    [actix_url, axum_url]
}

#[tokio::test(flavor = "multi_thread")]
async fn an_example_serves_what_is_allowed_and_says_when_to_come_again() {
    let app = an_app().at("2026-03-10T12:00:00Z").without_jobs().start().await;
    app.define("meters/call", json!({ "unit": "call", "booked": false })).await;
    let searches = json!({ "method": "GET", "path": "/search/**" });
    let operation = json!({ "costs": [{ "meter": "call", "base": "1" }], "match": [searches] });
    app.define("operations/search", operation).await;
    let limit = json!({ "id": "address", "meter": "call", "scope": "subject", "subject_kind": "ip",
        "algorithm": "fixed_window", "window_seconds": 10, "capacity": "2", "message": "Too many searches." });
    app.define("plans/site", json!({ "limits": [limit] })).await;
    app.define("tenants/site", json!({ "plan": "site" })).await;
    let client = http_client(Duration::from_secs(10));
    let open = served(Guard::new(app.url(), app.key(), "site", true).unwrap());
    let closed = served(Guard::new("http://127.0.0.1:1", app.key(), "site", false).unwrap());
    let without_answer = served(Guard::new("http://127.0.0.1:1", app.key(), "site", true).unwrap());
    for (number, url) in open.iter().enumerate() {
        app.move_clock(&format!("2026-03-10T12:0{}:00Z", number + 1)).await;
        for left in [1, 0] {
            let answer = client.get(url).send().await.unwrap();
            assert_eq!(answer.headers()["ratelimit"], format!("\"address\";r={left};t=10"));
            assert_eq!(answer.headers()["ratelimit-policy"], "\"address\";q=2;w=10");
            assert_eq!(
                (answer.status().as_u16(), answer.text().await.unwrap().as_str()),
                (200, "what was found")
            );
        }
        let answer = client.get(url).send().await.unwrap();
        assert_eq!(answer.headers()["retry-after"], "10");
        assert_eq!(
            (answer.status().as_u16(), answer.text().await.unwrap().as_str()),
            (429, "Too many searches.")
        );
    }
    // What Tollgate does not accept must not be a way around the limit.
    let revoked = served(Guard::new(app.url(), "tg_00_00", "site", true).unwrap());
    for url in &open {
        let long = url.replace("books", &"a".repeat(2_000));
        assert_eq!(client.get(long).send().await.unwrap().status().as_u16(), 503);
        assert_eq!(client.head(url).send().await.unwrap().status().as_u16(), 503);
    }
    for (urls, status) in [(closed, 503), (without_answer, 200), (revoked, 503)] {
        for url in urls {
            assert_eq!(client.get(&url).send().await.unwrap().status().as_u16(), status, "{url}");
        }
    }
    app.finish().await;
}
