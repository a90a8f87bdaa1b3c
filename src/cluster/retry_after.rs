//! Keeps the `Retry-After` of an answer: kube hands an error's body on, and not its header.

use axum::body::Bytes;
use axum::http::{HeaderMap, Response, StatusCode, header};
use http_body_util::{BodyExt, Either, Full, Limited};
use kube::core::Status;
use kube::core::response::StatusDetails;
use tower::BoxError;

/// The most that is read of an error's body.
const MAX_BODY: usize = 256 << 10;

/// An answer with its `Retry-After` in its body. API servers that are too busy send the header with a plain text
/// (`tooManyRequests` in k8s.io/apiserver/pkg/server/filters).
///
/// # Errors
/// When the body cannot be read.
pub async fn keep<B>(answer: Response<B>) -> Result<Response<Either<B, Full<Bytes>>>, BoxError>
where
    B: axum::body::HttpBody<Data = Bytes, Error = BoxError>,
{
    let seconds =
        seconds(answer.headers()).filter(|_| answer.status().is_client_error() || answer.status().is_server_error());
    let Some(seconds) = seconds else { return Ok(answer.map(Either::Left)) };
    let (mut parts, body) = answer.into_parts();
    let body = Limited::new(body, MAX_BODY).collect().await?.to_bytes();
    let body = serde_json::to_vec(&with_seconds(parts.status, &body, seconds))?;
    parts.headers.remove(header::CONTENT_LENGTH);
    Ok(Response::from_parts(parts, Either::Right(Full::from(body))))
}

fn seconds(headers: &HeaderMap) -> Option<u32> {
    headers.get(header::RETRY_AFTER)?.to_str().ok()?.parse().ok()
}

fn with_seconds(code: StatusCode, body: &[u8], seconds: u32) -> Status {
    let text = || String::from_utf8_lossy(body).trim().to_owned();
    let mut status = serde_json::from_slice(body).unwrap_or_else(|_| {
        Status::failure(&text(), code.canonical_reason().unwrap_or_default()).with_code(code.as_u16())
    });
    let details = status.details.get_or_insert_with(no_details);
    details.retry_after_seconds = details.retry_after_seconds.max(seconds);
    status
}

fn no_details() -> StatusDetails {
    let [name, group, kind, uid] = Default::default();
    StatusDetails { name, group, kind, uid, causes: Vec::new(), retry_after_seconds: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn kept(code: u16, retry_after: Option<&str>, body: &str) -> Result<Status, String> {
        let mut answer = Response::builder().status(code);
        if let Some(seconds) = retry_after {
            answer = answer.header(header::RETRY_AFTER, seconds);
        }
        let body = Full::from(body.to_owned()).map_err(BoxError::from);
        let kept = keep(answer.body(body).unwrap()).await.unwrap();
        let body = kept.into_body().collect().await.unwrap().to_bytes();
        serde_json::from_slice(&body).map_err(|_| String::from_utf8_lossy(&body).into_owned())
    }

    #[tokio::test]
    async fn a_plain_text_becomes_a_status() {
        let status = kept(429, Some("1"), "Too many requests, please try again later.\n").await.unwrap();
        assert_eq!((status.code, status.reason.as_str()), (429, "Too Many Requests"));
        assert_eq!(status.message, "Too many requests, please try again later.");
        assert_eq!(status.details.unwrap().retry_after_seconds, 1);
    }

    #[tokio::test]
    async fn a_status_keeps_what_it_says() {
        let sent = r#"{"kind":"Status","code":500,"reason":"ServerTimeout","message":"m","details":{"name":"x"}}"#;
        let status = kept(500, Some("7"), sent).await.unwrap();
        let details = status.details.unwrap();
        assert_eq!((status.message.as_str(), details.name.as_str(), details.retry_after_seconds), ("m", "x", 7));
    }

    #[tokio::test]
    async fn all_else_is_left_alone() {
        assert_eq!(kept(429, None, "busy").await.unwrap_err(), "busy");
        assert_eq!(kept(503, Some("Wed, 21 Oct 2026 07:28:00 GMT"), "down").await.unwrap_err(), "down");
        assert_eq!(kept(200, Some("1"), "fine").await.unwrap_err(), "fine");
    }
}
