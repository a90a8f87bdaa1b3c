//! The admin server: `/livez`, `/readyz` and `/metrics`, over plain HTTP.
//!
//! It shows counts and the state of the process, and nothing of any object; whom it may be reached by is for a NetworkPolicy.

use std::net::TcpListener;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum_server::Handle;
use tokio_util::sync::CancellationToken;

use super::{CloseOnDrop, Error, connection};
use crate::observe::health::Health;
use crate::observe::metrics::{self, Metrics};

/// The most connections at a time: a kubelet and a few scrapers.
const MAX_CONNECTIONS: usize = 32;

/// Serves until `stop`. It should be the last to end: it is what says that the rest is draining.
///
/// # Errors
///
/// [`Error::Listen`] at once; [`Error::Serve`] and [`Error::EndedEarly`] when it ends unasked.
pub async fn run(
    listener: TcpListener,
    health: Health,
    metrics: Metrics,
    stop: CancellationToken,
) -> Result<(), Error> {
    let handle = Handle::new();
    let _guard = CloseOnDrop(handle.clone());
    let serving = connection::listen(listener, MAX_CONNECTIONS, metrics.clone())
        .map_err(Error::Listen)?
        .handle(handle)
        .serve(router(health, metrics).into_make_service());
    tokio::select! {
        ended = serving => ended.map_err(Error::Serve).and(Err(Error::EndedEarly)),
        () = stop.cancelled() => Ok(()),
    }
}

fn router(health: Health, metrics: Metrics) -> Router {
    Router::new()
        // That it answers is the answer: the parts of the program that can fail end it when they do.
        .route("/livez", get(|| async { "ok\n" }))
        .route("/readyz", get(ready).with_state(health))
        .route("/metrics", get(expose).with_state(metrics))
}

async fn ready(State(health): State<Health>) -> Response {
    match health.ready() {
        Ok(()) => "ok\n".into_response(),
        Err(reasons) => (StatusCode::SERVICE_UNAVAILABLE, format!("{}\n", reasons.join("\n"))).into_response(),
    }
}

async fn expose(State(metrics): State<Metrics>) -> Response {
    match metrics.encode() {
        Ok(text) => ([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], text).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;
    use http_body_util::BodyExt;
    use hyper_util::client::legacy::Client;
    use hyper_util::rt::TokioExecutor;

    #[tokio::test]
    async fn it_shows_life_readiness_and_metrics_until_it_is_told_to_stop() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let (health, metrics, stop) = (Health::default(), Metrics::new(), CancellationToken::new());
        let task = tokio::spawn(run(listener, health.clone(), metrics, stop.clone()));
        let client = Client::builder(TokioExecutor::new()).build_http::<Body>();
        let get = async |path: &str| {
            let response = client.get(format!("{base}{path}").parse().unwrap()).await.unwrap();
            let status = response.status();
            let body = response.into_body().collect().await.unwrap().to_bytes();
            (status, String::from_utf8(body.to_vec()).unwrap())
        };

        assert_eq!(get("/livez").await, (StatusCode::OK, "ok\n".to_owned()));
        assert_eq!(get("/readyz").await.0, StatusCode::OK);
        let watches = health.condition("watches");
        let unready = (StatusCode::SERVICE_UNAVAILABLE, "waiting for watches\n".to_owned());
        assert_eq!(get("/readyz").await, unready);
        watches.set(true);
        assert_eq!(get("/readyz").await.0, StatusCode::OK);
        assert!(get("/metrics").await.1.contains("confpin_build_info"));
        assert_eq!(get("/other").await.0, StatusCode::NOT_FOUND);

        stop.cancel();
        task.await.unwrap().unwrap();
        client.get(format!("{base}/livez").parse().unwrap()).await.unwrap_err();
    }
}
