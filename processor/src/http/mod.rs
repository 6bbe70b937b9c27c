//! Metrics and health, on a port of their own.
//!
//! Reads: [`Metrics`] and [`Health`]. Gives: `/metrics`, `/healthz/live`, `/healthz/ready`.
//! Never: changes anything.

mod health;

use std::future::Future;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::net::TcpListener;

pub use health::{Health, LoopTick, Report};

use crate::telemetry::Metrics;

/// Serves until `shutdown` is ready. The caller chooses both port and end.
///
/// # Errors
/// When the listener fails.
pub async fn serve(
    listener: TcpListener,
    metrics: Metrics,
    health: Health,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    let router = Router::new()
        .route("/metrics", get(scrape))
        .route("/healthz/live", get(live))
        .route("/healthz/ready", get(ready))
        .with_state(Shown { metrics, health });
    axum::serve(listener, router).with_graceful_shutdown(shutdown).await
}

#[derive(Clone)]
struct Shown {
    metrics: Metrics,
    health: Health,
}

async fn scrape(State(shown): State<Shown>) -> Response {
    match shown.metrics.text() {
        Ok(text) => ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

async fn live(State(shown): State<Shown>) -> Response {
    answer(&shown.health.live())
}

async fn ready(State(shown): State<Shown>) -> Response {
    answer(&shown.health.ready())
}

fn answer(report: &Report) -> Response {
    let status = if report.ok { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let body = serde_json::json!({ "ok": report.ok, "why": report.why }).to_string();
    (status, [(header::CONTENT_TYPE, "application/json")], body).into_response()
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;
    use tokio::sync::oneshot;

    use super::*;

    async fn fetch(address: std::net::SocketAddr, path: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn the_three_paths_answer_over_a_socket() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let health = Health::new();
        let metrics = Metrics::new().unwrap();
        let served = crate::task::spawn(
            "http",
            &metrics.clone(),
            serve(listener, metrics, health.clone(), async { drop(stopped.await) }),
        );
        assert!(fetch(address, "/metrics").await.contains("oncely_build_info"));
        assert!(fetch(address, "/healthz/live").await.starts_with("HTTP/1.1 200"));
        let not_ready = fetch(address, "/healthz/ready").await;
        assert!(not_ready.starts_with("HTTP/1.1 503"), "{not_ready}");
        assert!(not_ready.contains("the database has not been reached yet"), "{not_ready}");
        stop.send(()).unwrap();
        served.await.unwrap().unwrap().unwrap();
    }
}
