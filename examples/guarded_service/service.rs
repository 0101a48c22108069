//! The same endpoint twice: behind the guard of actix-web, and behind that of tower.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use actix_web::middleware::from_fn;
use actix_web::{App, HttpServer, web};
use axum::Router;
use axum::routing::get;

use super::actix::guarded;
use super::guard::Guard;
use super::tower::GuardLayer;

const SEARCH: &str = "what was found";

/// Serves `GET /search/{words}` with actix-web.
pub(crate) async fn with_actix(listener: TcpListener, guard: Arc<Guard>) -> std::io::Result<()> {
    let guard = web::Data::from(guard);
    let app = move || {
        let search = web::get().to(async || SEARCH);
        App::new().app_data(guard.clone()).wrap(from_fn(guarded)).route("/search/{words}", search)
    };
    let server = HttpServer::new(app).workers(1).disable_signals().listen(listener)?.run();
    server.await
}

/// Serves the same with axum.
pub(crate) async fn with_axum(listener: TcpListener, guard: Arc<Guard>) -> std::io::Result<()> {
    listener.set_nonblocking(true)?;
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let search = get(async || SEARCH);
    let app = Router::new().route("/search/{words}", search).layer(GuardLayer(guard));
    axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await
}
