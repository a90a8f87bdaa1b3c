//! Bounds a request to the API server, and tries it again when it failed for the moment.

use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBuilder};
use tokio::time::{Instant, timeout};

use crate::cluster::Error;

/// The pauses between attempts, unless the API server asks for longer ones. With jitter, so that those who failed together
/// do not come back together.
const PAUSES: ExponentialBuilder = ExponentialBuilder::new()
    .with_min_delay(Duration::from_millis(50))
    .with_max_delay(Duration::from_secs(1))
    .without_max_times()
    .with_jitter();

/// How long a request without a deadline is retried: its caller tries again later anyway.
const RETRIES: Duration = Duration::from_secs(5);

/// The shortest time that an attempt is given, where the deadline is not closer than that.
const SHORTEST: Duration = Duration::from_millis(500);

/// How long a request may take.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// The longest that one attempt may take.
    pub attempt: Duration,
    /// When the answer is no longer of use.
    pub deadline: Option<Instant>,
    /// Whether to try again.
    pub retries: bool,
}

impl Default for Patience {
    /// As long as `kubectl` users wait for a large list, with retries for a few seconds.
    fn default() -> Self {
        Self { attempt: Duration::from_secs(30), deadline: None, retries: true }
    }
}

impl Patience {
    /// How long an attempt that begins at `now` may take. With a deadline half of what is left: an attempt on a connection
    /// that is dead leaves time for another one.
    fn of_attempt(&self, now: Instant) -> Duration {
        let Some(deadline) = self.deadline else { return self.attempt };
        let left = deadline.saturating_duration_since(now);
        self.attempt.min((left / 2).max(SHORTEST)).min(left)
    }

    /// Until when new attempts may begin, of a request that begins at `now`.
    fn last_attempt(&self, now: Instant) -> Instant {
        if self.retries { self.deadline.unwrap_or(now + RETRIES) } else { now }
    }
}

/// Runs `request`, and again after a pause while it fails for the moment, as long as `allowed` before each attempt and
/// within the bounds of `patience`. Only for requests that may be repeated.
///
/// # Errors
/// That of the last attempt, or that of `allowed`.
pub(super) async fn bounded<T, F>(
    action: &str,
    patience: Patience,
    allowed: impl Fn() -> Result<(), Error>,
    mut request: impl FnMut() -> F,
) -> Result<T, Error>
where
    F: Future<Output = Result<T, kube::Error>>,
{
    let last = patience.last_attempt(Instant::now());
    let mut pauses = PAUSES.build();
    loop {
        allowed()?;
        let limit = patience.of_attempt(Instant::now());
        let error = match timeout(limit, request()).await {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(error)) => Error::new(action, error),
            Err(_) => Error::unanswered(action, limit),
        };
        let pause = pauses.next().unwrap_or_default() + error.retry_after().unwrap_or_default();
        if !error.is_transient() || Instant::now() + pause >= last {
            return Err(error);
        }
        tracing::debug!(%error, ?pause, "trying again");
        tokio::time::sleep(pause).await;
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use kube::core::Status;

    use super::*;

    fn failure(code: u16) -> kube::Error {
        kube::Error::Api(Box::new(Status { code, ..Status::default() }))
    }

    fn busy(seconds: u32) -> kube::Error {
        let status = serde_json::json!({"code": 429, "details": {"retryAfterSeconds": seconds}});
        kube::Error::Api(serde_json::from_value(status).expect("a status"))
    }

    /// What came of a request with these answers in turn, how often it was asked, and how long that took.
    async fn asked(patience: Patience, answers: impl Fn(u32) -> Result<u32, kube::Error>) -> (Result<u32, Error>, u32) {
        let mut count = 0;
        let request = || {
            count += 1;
            ready(answers(count))
        };
        let result = bounded("ask", patience, || Ok(()), request).await;
        (result, count)
    }

    fn until(left: Duration) -> Patience {
        Patience { deadline: Some(Instant::now() + left), ..Patience::default() }
    }

    #[tokio::test(start_paused = true)]
    async fn a_passing_failure_is_hidden() {
        let answers = |count| match count {
            1 => Err(failure(429)),
            2 => Err(failure(503)),
            count => Ok(count),
        };
        assert_eq!(asked(Patience::default(), answers).await.0.expect("answered"), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn a_rejection_is_final_and_a_lasting_failure_ends() {
        let (result, count) = asked(Patience::default(), |_| Err(failure(403))).await;
        assert_eq!((result.expect_err("rejected").code(), count), (Some(403), 1));
        let begin = Instant::now();
        let (result, count) = asked(Patience::default(), |_| Err(failure(503))).await;
        assert_eq!(result.expect_err("unavailable").code(), Some(503));
        assert!((3..50).contains(&count), "{count} attempts");
        assert!(begin.elapsed() <= RETRIES, "{:?}", begin.elapsed());
        let once = Patience { retries: false, ..Patience::default() };
        assert_eq!(asked(once, |_| Err(failure(503))).await.1, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn what_the_api_server_asks_for_is_waited_and_no_deadline_is_missed_by_it() {
        let answers = |count| if count < 3 { Err(busy(1)) } else { Ok(count) };
        let begin = Instant::now();
        assert_eq!(asked(until(Duration::from_secs(9)), answers).await.0.expect("answered"), 3);
        assert!((2000..3000).contains(&begin.elapsed().as_millis()), "{:?}", begin.elapsed());

        let begin = Instant::now();
        let (result, count) = asked(until(Duration::from_secs(9)), |_| Err(busy(60))).await;
        assert_eq!((result.expect_err("too busy").code(), count), (Some(429), 1));
        assert_eq!(begin.elapsed(), Duration::ZERO, "to wait would have been in vain");
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_nobody_answers_is_given_up_and_tried_again() {
        let begin = Instant::now();
        let mut count = 0;
        let request = || {
            count += 1;
            let hangs = count == 1;
            async move { if hangs { pending().await } else { Ok(()) } }
        };
        let deadline = until(Duration::from_millis(9500));
        bounded("ask", deadline, || Ok(()), request).await.expect("the second attempt is answered");
        assert!(begin.elapsed() < Duration::from_secs(6), "{:?}", begin.elapsed());

        let begin = Instant::now();
        let hangs = || pending::<Result<(), kube::Error>>();
        let error = bounded("ask", deadline, || Ok(()), hangs).await.expect_err("no answer");
        assert!(error.is_transient() && begin.elapsed() <= Duration::from_millis(9500), "{error}");
        let begin = Instant::now();
        let error = bounded("ask", Patience::default(), || Ok(()), hangs).await.expect_err("no answer");
        assert_eq!(begin.elapsed(), Duration::from_secs(30));
        assert_eq!(error.to_string(), "failed to ask: the API server did not answer within 30s");
    }

    #[tokio::test(start_paused = true)]
    async fn no_attempt_is_made_that_is_not_allowed() {
        let allowed = std::cell::Cell::new(true);
        let check = || match allowed.get() {
            true => Ok(()),
            false => Err(Error::NotLeader { action: "ask".to_owned() }),
        };
        let request = || {
            allowed.set(false);
            ready(Err::<(), _>(failure(503)))
        };
        let result = bounded("ask", Patience::default(), check, request).await;
        assert!(matches!(result, Err(Error::NotLeader { .. })));
    }
}
