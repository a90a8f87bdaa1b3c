//! Tries a request again when it failed for the moment.

use std::time::Duration;

use crate::cluster::Error;

/// How often a request is tried. The deadline of the whole is the caller's; this only keeps a broken API server from
/// being asked forever.
const ATTEMPTS: u32 = 5;

/// The pause before the second attempt; it doubles with each.
const FIRST_PAUSE: Duration = Duration::from_millis(50);

/// Runs `request`, and again after a pause while it fails for the moment. Only for requests that may be repeated.
///
/// # Errors
/// That of the last attempt.
pub async fn transient<T, F>(action: &str, request: impl FnMut() -> F) -> Result<T, Error>
where
    F: Future<Output = Result<T, kube::Error>>,
{
    guarded(action, || Ok(()), request).await
}

/// The same, as long as `allowed` before each attempt.
///
/// # Errors
/// That of the last attempt, or that of `allowed`.
pub(super) async fn guarded<T, F>(
    action: &str,
    allowed: impl Fn() -> Result<(), Error>,
    mut request: impl FnMut() -> F,
) -> Result<T, Error>
where
    F: Future<Output = Result<T, kube::Error>>,
{
    let mut pause = FIRST_PAUSE;
    let mut attempt = 1;
    loop {
        allowed()?;
        match request().await.map_err(|error| Error::new(action, error)) {
            Err(error) if error.is_transient() && attempt < ATTEMPTS => {
                tracing::debug!(%error, "trying again");
                tokio::time::sleep(pause).await;
                pause *= 2;
                attempt += 1;
            }
            result => return result,
        }
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    fn failure(code: u16) -> kube::Error {
        kube::Error::Api(Box::new(Status { code, ..Status::default() }))
    }

    #[tokio::test(start_paused = true)]
    async fn a_passing_failure_is_hidden() {
        let mut answers = vec![Ok(7), Err(failure(503)), Err(failure(429))];
        let result = transient("ask", || std::future::ready(answers.pop().expect("an answer"))).await;
        assert_eq!(result.expect("answered"), 7);
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_is_final_and_a_lasting_failure_ends() {
        for (code, attempts) in [(403, 1), (503, ATTEMPTS)] {
            let mut asked = 0;
            let result: Result<(), _> = transient("ask", || {
                asked += 1;
                std::future::ready(Err(failure(code)))
            })
            .await;
            assert_eq!(result.expect_err("refused").code(), Some(code));
            assert_eq!(asked, attempts);
        }
    }
}
