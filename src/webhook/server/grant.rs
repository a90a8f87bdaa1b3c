//! How long a request may take, from what its API server says it grants.

use std::time::Duration;

use jiff::fmt::friendly::SpanParser;
use tokio::time::Instant;

/// What an API server grants when its webhook configuration names no `timeoutSeconds`.
const DEFAULT: Duration = Duration::from_secs(10);

/// The largest `timeoutSeconds` that a webhook configuration can name.
pub(super) const LONGEST: Duration = Duration::from_secs(30);

/// The most that is kept back of the time granted, for the way back and a busy machine. Of short grants, a tenth.
const MARGIN: Duration = Duration::from_millis(500);

/// The two instants by which a request is bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Deadlines {
    /// By when the handler should have answered: it knows best what to say when it cannot.
    pub(super) handler: Instant,
    /// When the server answers instead, still before the API server gives up.
    pub(super) server: Instant,
}

impl Deadlines {
    /// The deadlines of a request that arrived at `start` with this query.
    pub(super) fn new(start: Instant, query: Option<&str>) -> Self {
        let granted = granted(query);
        let margin = (granted / 10).min(MARGIN);
        Self { handler: start + (granted - margin), server: start + (granted - margin / 2) }
    }
}

/// The `timeout` of a query, a duration as Go writes it (`10s`, `1m0s`, `1.5s`), held to what an API server can mean.
fn granted(query: Option<&str>) -> Duration {
    let pairs = query.unwrap_or_default().split('&');
    let text = pairs.filter_map(|pair| pair.strip_prefix("timeout=")).next();
    text.and_then(|text| SpanParser::new().parse_unsigned_duration(text).ok())
        .filter(|granted| !granted.is_zero())
        .map_or(DEFAULT, |granted| granted.min(LONGEST))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case::none(None, 10_000)]
    #[case::empty(Some(""), 10_000)]
    #[case::seconds(Some("timeout=7s"), 7_000)]
    #[case::among_others(Some("a=b&timeout=7s&c"), 7_000)]
    #[case::minutes(Some("timeout=0m5s"), 5_000)]
    #[case::fraction(Some("timeout=1.5s"), 1_500)]
    #[case::millis(Some("timeout=500ms"), 500)]
    #[case::over(Some("timeout=1m0s"), 30_000)]
    #[case::far_over(Some("timeout=99999999999999999999h"), 10_000)]
    #[case::zero(Some("timeout=0s"), 10_000)]
    #[case::negative(Some("timeout=-1s"), 10_000)]
    #[case::no_unit(Some("timeout=10"), 10_000)]
    #[case::other_name(Some("xtimeout=1s"), 10_000)]
    fn the_grant_is_read_as_go_writes_it(#[case] query: Option<&str>, #[case] millis: u64) {
        assert_eq!(granted(query), Duration::from_millis(millis));
    }

    #[rstest]
    #[case("timeout=10s", 9_500, 9_750)]
    #[case("timeout=1s", 900, 950)]
    #[case("timeout=100ms", 90, 95)]
    fn the_handler_ends_before_the_server_and_both_before_the_api_server(
        #[case] query: &str,
        #[case] handler: u64,
        #[case] server: u64,
    ) {
        let start = Instant::now();
        let deadlines = Deadlines::new(start, Some(query));
        assert_eq!(deadlines.handler - start, Duration::from_millis(handler));
        assert_eq!(deadlines.server - start, Duration::from_millis(server));
    }
}
