//! A service that asks Tollgate before it serves a call: once with actix-web, once with axum.
//!
//! It needs the policy of the recipe "A public endpoint" (docs/RECIPES.md) and a key of the role `service`:
//!
//! ```sh
//! TOLLGATE_KEY=tg_… cargo run --example guarded_service
//! curl -i http://127.0.0.1:9001/search/books    # actix-web
//! curl -i http://127.0.0.1:9002/search/books    # axum
//! ```

#![allow(clippy::disallowed_methods, reason = "a program of its own, whose settings are in the environment")]

mod actix;
mod guard;
mod service;
mod tower;

use std::env;
use std::error::Error;
use std::net::TcpListener;
use std::sync::Arc;

use guard::Guard;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = env::var("TOLLGATE_URL").unwrap_or("http://127.0.0.1:8080".into());
    let key = env::var("TOLLGATE_KEY").map_err(|_| "TOLLGATE_KEY has no key of a service")?;
    let guard = Arc::new(Guard::new(&url, &key, "site", true)?);
    let actix = service::with_actix(TcpListener::bind("127.0.0.1:9001")?, guard.clone());
    let axum = service::with_axum(TcpListener::bind("127.0.0.1:9002")?, guard);
    tokio::try_join!(actix, axum)?;
    Ok(())
}
