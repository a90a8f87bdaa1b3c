//! Ages as `kubectl get` writes them.

use jiff::Timestamp;

/// How long ago `then` was: `45s`, `7m30s`, `3h`, `5d4h`; by the rules of Kubernetes' `duration.HumanDuration`, so that
/// the columns of `kubectl get` and ours agree.
#[must_use]
pub fn age(then: Timestamp, now: Timestamp) -> String {
    let seconds = now.duration_since(then).as_secs().max(0);
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86400);
    let two = |large: i64, unit: char, small: i64, small_unit: char| match small {
        0 => format!("{large}{unit}"),
        small => format!("{large}{unit}{small}{small_unit}"),
    };
    match () {
        () if seconds < 120 => format!("{seconds}s"),
        () if minutes < 10 => two(minutes, 'm', seconds % 60, 's'),
        () if minutes < 180 => format!("{minutes}m"),
        () if hours < 8 => two(hours, 'h', minutes % 60, 'm'),
        () if hours < 48 => format!("{hours}h"),
        () if days < 8 => two(days, 'd', hours % 24, 'h'),
        () if days < 2 * 365 => format!("{days}d"),
        () if days < 8 * 365 => two(days / 365, 'y', days % 365, 'd'),
        () => format!("{}y", days / 365),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_written_as_kubectl_does() {
        let then = Timestamp::from_second(1_000_000).expect("a time");
        for (seconds, expected) in [
            (-5, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (450, "7m30s"),
            (600, "10m"),
            (3 * 3600, "3h"),
            (3 * 3600 + 60, "3h1m"),
            (9 * 3600 + 60, "9h"),
            (5 * 86400 + 4 * 3600, "5d4h"),
            (40 * 86400, "40d"),
            (800 * 86400, "2y70d"),
            (9 * 365 * 86400, "9y"),
        ] {
            let now = Timestamp::from_second(1_000_000 + seconds).expect("a time");
            assert_eq!(age(then, now), expected, "{seconds}");
        }
    }
}
