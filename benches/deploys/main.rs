//! How much a deploy feels confpin: `cargo bench --bench deploys`, on a real API server.
//!
//! The figures are ratios within one run, since machines differ and are shared: each repetition makes the request with
//! confpin, without, and then confpin's own requests directly (the *floor*), in turns. Prints Markdown for
//! `docs/benchmarks.md`. `-- --repetitions=20` takes fewer of them. `-- --short` takes few of the smaller cases and
//! fails where one is far off: that is for CI, where programs are not optimised and the machine is busy.
//! `-- --soak=60` deploys for that many minutes in place of all this, and shows whether anything grows.

mod confpin;
mod figures;
mod floor;
mod latency;
mod machine;
mod objects;
mod owners;
mod soak;

use std::num::ParseIntError;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use latency::{Act, Case, Times};
use owners::Pace;
use testcluster::Cluster;

/// How often each request is made: so many that the 99th percentile is not just the slowest.
const REPETITIONS: usize = 200;
/// With large ConfigMaps at most so often: each repetition leaves some megabytes in etcd.
const LARGE_REPETITIONS: usize = 40;
const SHORT_REPETITIONS: usize = 15;
const SMALL: usize = 2_000;
const LARGE: usize = 200_000;

#[tokio::main]
async fn main() -> Result<()> {
    let short = std::env::args().any(|argument| argument == "--short");
    let repetitions = option("--repetitions=")?.unwrap_or(if short { SHORT_REPETITIONS } else { REPETITIONS });
    if let Some(minutes) = option::<u64>("--soak=")? {
        let cluster = Cluster::builder().start().await?;
        // What is superseded before it has a ReplicaSet shall be seen to go.
        let confpin = confpin::start(&cluster, &["--orphan-grace=1m"]).await?;
        soak::run(&cluster, &confpin, Duration::from_secs(60 * minutes)).await?;
        return confpin.end().await;
    }
    // Without the ReplicaSet controller there are no pods, so that scaling costs no more than the request.
    let flags = ["--controllers=deployment-controller,namespace-controller,serviceaccount-controller"];
    let cluster = Cluster::builder().controller_manager_flags(flags).start().await?;
    println!("{}\n", machine::describe(&cluster.client()).await?);
    let confpin = confpin::start(&cluster, &[]).await?;

    println!("{repetitions} repetitions, {} with large ConfigMaps:\n", repetitions.min(LARGE_REPETITIONS));
    println!(
        "| request | sources | without | with | added | inside | floor | ratio | p99 added | p99 floor | p99 ratio |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|");
    let mut far_off = Vec::new();
    for case in cases(repetitions).filter(|case| !short || case.is_small()) {
        let times = latency::measure(&cluster, &confpin, case).await?;
        print_row(case, &times);
        far_off.extend((short && !case.is_near(&times)).then_some(case));
    }
    println!("\n| rolled | reference p50 | p99 | all after | confpin's writes |\n|---|---|---|---|---|");
    for pace in if short { Pace::SHORT } else { Pace::LONG } {
        let rolled = owners::measure(&cluster, *pace).await?;
        let (median, p99) = (rolled.delays.median(), rolled.delays.p99());
        println!("| {pace} | {median:.0} ms | {p99:.0} ms | {:.1?} | {} |", rolled.took, rolled.writes);
    }
    confpin.end().await?;
    ensure!(far_off.is_empty(), "confpin adds far more than it should to {far_off:?}");
    Ok(())
}

/// The number that an option has, where it is given.
fn option<T: FromStr<Err = ParseIntError>>(name: &str) -> Result<Option<T>> {
    let given = std::env::args().find_map(|argument| argument.strip_prefix(name).map(str::to_owned));
    given.map(|number| number.parse().with_context(|| format!("{name} wants a number"))).transpose()
}

fn cases(repetitions: usize) -> impl Iterator<Item = Case> {
    let acts = [Act::Create, Act::Update, Act::Image, Act::Again];
    let pinned = move |bytes: usize, repetitions: usize| {
        let each = move |sources| acts.map(|act| Case { act, sources, bytes, repetitions });
        [1, 3, 10].into_iter().flat_map(each)
    };
    let others = [(Act::Exempt, 0), (Act::Scale, 1), (Act::Image, 0)];
    let others = others.map(|(act, sources)| Case { act, sources, bytes: SMALL, repetitions });
    pinned(SMALL, repetitions).chain(others).chain(pinned(LARGE, repetitions.min(LARGE_REPETITIONS)))
}

fn print_row(case: Case, times: &Times) {
    let what = match case.act {
        Act::Create => "create",
        Act::Update => "new image, new content",
        Act::Image => "new image",
        Act::Again => "same manifest again",
        Act::Scale => "scale",
        Act::Exempt => "create, nothing to pin",
    };
    let sources = match case.sources {
        0 => "none".to_owned(),
        sources => format!("{sources} × {} KB", case.bytes / 1_000),
    };
    let milliseconds = |value: Option<f64>| value.map_or("–".to_owned(), |value| format!("{value:.1} ms"));
    let floor = |quantile: f64| {
        let ratio = times.ratio(quantile);
        let text = ratio.map_or("–".to_owned(), |ratio| format!("{ratio:.2}"));
        (milliseconds(ratio.map(|_| times.floor.quantile(quantile))), text)
    };
    let ((median, ratio), (p99, p99_ratio)) = (floor(0.5), floor(0.99));
    println!(
        "| {what} | {sources} | {:.1} ms | {:.1} ms | {:.1} ms | {} | {median} | {ratio} | {:.1} ms | {p99} | {p99_ratio} |",
        times.without.median(),
        times.with.median(),
        times.added(0.5),
        milliseconds(times.inside),
        times.added(0.99),
    );
}
