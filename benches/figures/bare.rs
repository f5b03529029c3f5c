//! Baseline of ingest: a bare axum handler that stores deliveries with the same group commit, and does nothing else.

use std::path::Path;

use anyhow::{Context, bail};
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use ralph_bot::clock::Clock;
use ralph_bot::domain::model::ids::ForgeName;
use ralph_bot::store::Store;
use ralph_bot::store::inbox::{self, Body, StoredDelivery};
use ralph_bot::store::test_server::settings;

/// First argument of the handler's process; the second is the folder of its database, or the address of a server of PostgreSQL.
pub const ARGUMENT: &str = "--bare-handler";

/// Main function of the separate process: prints its address and serves until it is killed.
pub async fn serve(arguments: &[String]) -> anyhow::Result<()> {
    let [database] = arguments else { bail!("a folder or an address is needed") };
    let store = match database.starts_with("postgres://") {
        true => Store::open(settings(database))?,
        false => Store::open(Path::new(database).join("bare.db").as_path())?,
    };
    let router = Router::new().route("/webhooks/github", post(keep)).with_state(store);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    println!("{}", listener.local_addr()?);
    axum::serve(listener, router).await.context("the bare handler failed")
}

/// Stores a delivery under its id, and answers once it is on disk.
async fn keep(State(store): State<Store>, headers: HeaderMap, body: Bytes) -> StatusCode {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
    let row = StoredDelivery {
        forge: ForgeName::new("forge"),
        delivery: text("x-github-delivery"),
        event: text("x-github-event"),
        body: Body::pack(&body),
    };
    match store.write(move |c| inbox::insert(c, &row, Clock::System.now())).await {
        Ok(_) => StatusCode::ACCEPTED,
        Err(_) => StatusCode::SERVICE_UNAVAILABLE,
    }
}
