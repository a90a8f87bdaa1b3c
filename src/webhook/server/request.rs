//! One request: whether it is let in, its body, its deadline, and an answer whatever the handler does.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Version, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use futures::{FutureExt, StreamExt};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};
use tracing::Instrument;

use super::grant::Deadlines;
use super::{Handler, Limits, PATH, trace};
use crate::observe::health::Health;
use crate::observe::labels::Rejection;
use crate::observe::metrics::Metrics;

/// How long a body may take to arrive once it is read, however long the request may take: it comes from memory.
const BODY_READ: Duration = Duration::from_secs(5);

struct Gate<H> {
    handler: Arc<H>,
    permits: Semaphore,
    max_body: usize,
    health: Health,
    metrics: Metrics,
}

/// Why the server answers by itself. The text goes to the sender of the request: through the API server, to the person whose
/// workload is not admitted.
#[derive(Debug, thiserror::Error)]
enum Refused {
    #[error("failed to read the request: its content type must be application/json")]
    ContentType,
    #[error("failed to read the request: its body is larger than {0} bytes (--max-body)")]
    TooLarge(usize),
    #[error("failed to read the request's body")]
    Body(#[source] axum::Error),
    #[error("failed to read the request's body in time")]
    BodyTimeout,
    #[error(
        "failed to begin in the time granted: as many requests are worked on as is allowed (--max-concurrent); try again"
    )]
    Busy,
    #[error("failed to answer in the time granted; try again")]
    Timeout,
    #[error("internal error in confpin; see its log")]
    Panic,
}

impl Refused {
    fn status(&self) -> StatusCode {
        match self {
            Self::ContentType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Body(_) => StatusCode::BAD_REQUEST,
            Self::BodyTimeout => StatusCode::REQUEST_TIMEOUT,
            Self::Busy => StatusCode::SERVICE_UNAVAILABLE,
            Self::Timeout => StatusCode::GATEWAY_TIMEOUT,
            Self::Panic => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    fn label(&self) -> Rejection {
        match self {
            Self::ContentType => Rejection::ContentType,
            Self::TooLarge(_) => Rejection::TooLarge,
            Self::Body(_) | Self::BodyTimeout => Rejection::Body,
            Self::Busy => Rejection::Busy,
            Self::Timeout => Rejection::Timeout,
            Self::Panic => Rejection::Panic,
        }
    }
}

/// The one route, behind its limits.
pub(super) fn router<H: Handler>(handler: Arc<H>, limits: Limits, health: Health, metrics: Metrics) -> Router {
    let permits = Semaphore::new(limits.max_concurrent.min(Semaphore::MAX_PERMITS));
    let gate = Gate { handler, permits, max_body: limits.max_body, health, metrics };
    Router::new()
        .route(PATH, post(review::<H>))
        .fallback(|| async { (StatusCode::NOT_FOUND, format!("not found; reviews are posted to {PATH}\n")) })
        .method_not_allowed_fallback(|| async {
            (StatusCode::METHOD_NOT_ALLOWED, [(header::ALLOW, "POST")], "reviews are posted\n")
        })
        .with_state(Arc::new(gate))
}

async fn review<H: Handler>(State(gate): State<Arc<Gate<H>>>, request: Request) -> Response {
    let deadlines = Deadlines::new(Instant::now(), request.uri().query());
    let (span, version) = (trace::span(request.headers()), request.version());
    let mut response = gate.respond(request, deadlines).instrument(span).await;
    // A connection that the server closes while a request is on its way to it fails that request, so it is left to the
    // client. HTTP/2 needs no such word: there the server says what it will not answer any more.
    if gate.health.is_draining() && version <= Version::HTTP_11 {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

impl<H: Handler> Gate<H> {
    async fn respond(&self, request: Request, deadlines: Deadlines) -> Response {
        match self.answer(request, deadlines).await {
            Ok(response) => response,
            Err(refused) => {
                self.metrics.rejected(refused.label());
                tracing::warn!(error = %refused, "a request was answered without the handler");
                (refused.status(), format!("{refused}\n")).into_response()
            }
        }
    }

    async fn answer(&self, request: Request, deadlines: Deadlines) -> Result<Response, Refused> {
        if !is_json(request.headers()) {
            return Err(Refused::ContentType);
        }
        // What is announced as too large is not waited for, nor read.
        if request.body().size_hint().lower() > self.max_body as u64 {
            return Err(Refused::TooLarge(self.max_body));
        }
        // Before the body, so that only so many of them are in memory.
        let permit = timeout_at(deadlines.handler, self.permits.acquire()).await;
        let Ok(Ok(_permit)) = permit else {
            return Err(Refused::Busy);
        };
        let _in_flight = self.metrics.in_flight();
        let read_by = deadlines.handler.min(Instant::now() + BODY_READ);
        let body =
            timeout_at(read_by, read(request.into_body(), self.max_body)).await.map_err(|_| Refused::BodyTimeout)??;
        // Nothing of the handler is used again that a panic could have left half-done: it starts from scratch with each request.
        let answer = AssertUnwindSafe(async { self.handler.review(body, deadlines.handler).await }).catch_unwind();
        match timeout_at(deadlines.server, answer).await {
            Ok(Ok(response)) => Ok(response),
            // The panic hook has logged where.
            Ok(Err(_)) => Err(Refused::Panic),
            Err(_) => Err(Refused::Timeout),
        }
    }
}

fn is_json(headers: &HeaderMap) -> bool {
    let value = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    // Whatever follows is a parameter, such as a charset.
    let essence = value.and_then(|value| value.split(';').next());
    essence.is_some_and(|essence| essence.trim().eq_ignore_ascii_case("application/json"))
}

async fn read(body: Body, limit: usize) -> Result<Bytes, Refused> {
    let announced = usize::try_from(body.size_hint().lower()).unwrap_or(limit);
    let mut content = Vec::with_capacity(announced.min(limit));
    let mut chunks = body.into_data_stream();
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(Refused::Body)?;
        if chunk.len() > limit - content.len() {
            return Err(Refused::TooLarge(limit));
        }
        content.extend_from_slice(&chunk);
    }
    Ok(content.into())
}
