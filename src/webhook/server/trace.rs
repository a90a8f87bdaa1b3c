//! The API server's trace, to find one request in the logs of both.

use axum::http::HeaderMap;
use tracing::Span;

/// The header of <https://www.w3.org/TR/trace-context/>, which an API server that traces sends to webhooks.
const TRACEPARENT: &str = "traceparent";

/// A span that names the trace that a request belongs to; none for a request without one.
pub(super) fn span(headers: &HeaderMap) -> Span {
    let parent = headers.get(TRACEPARENT).and_then(|value| value.to_str().ok());
    parent.and_then(trace_id).map_or_else(Span::none, |trace_id| tracing::info_span!("request", trace_id))
}

/// The second field of `00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01`. A later version may have more fields.
fn trace_id(traceparent: &str) -> Option<&str> {
    let is_hex = |text: &str, length: usize| {
        text.len() == length && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    };
    let mut fields = traceparent.split('-');
    let (version, trace_id, parent_id) = (fields.next()?, fields.next()?, fields.next()?);
    let stands = is_hex(version, 2) && is_hex(trace_id, 32) && is_hex(parent_id, 16);
    // All zeros is no trace.
    (stands && trace_id.bytes().any(|byte| byte != b'0')).then_some(trace_id)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const ID: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

    #[rstest]
    #[case::whole("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", Some(ID))]
    #[case::later_version("01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more", Some(ID))]
    #[case::no_trace("00-00000000000000000000000000000000-00f067aa0ba902b7-01", None)]
    #[case::too_long("00-4bf92f3577b34da6a3ce929d0e0e47366-00f067aa0ba902b7-01", None)]
    #[case::capitals("00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01", None)]
    #[case::forged("00-\u{1b}[31m92f3577b34da6a3ce929d0e0e47360-00f067aa0ba902b7-01", None)]
    #[case::half("00-4bf92f3577b34da6a3ce929d0e0e4736", None)]
    #[case::empty("", None)]
    fn the_trace_id_of_a_parent(#[case] traceparent: &str, #[case] expected: Option<&str>) {
        assert_eq!(trace_id(traceparent), expected);
    }
}
