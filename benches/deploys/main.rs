//! How much a deploy feels confpin: `cargo bench --bench deploys`, on a real API server.
//!
//! The figures are ratios within one run, since machines differ and are shared: each repetition makes the request with
//! confpin, without, and then confpin's own requests directly (the *floor*), in turns. Prints Markdown for
//! `docs/benchmarks.md`. `-- --repetitions=20` takes fewer of them, `-- --short` just enough to see that it works.

mod confpin;
mod figures;
mod floor;
mod latency;
mod machine;
mod objects;
mod owners;

use anyhow::{Context, Result};
use latency::{Act, Case, Times};
use testcluster::Cluster;

/// How often each request is made: so many that the 99th percentile is not just the slowest.
const REPETITIONS: usize = 200;
/// With large ConfigMaps at most so often: each repetition leaves some megabytes in etcd.
const LARGE_REPETITIONS: usize = 40;
const SHORT_REPETITIONS: usize = 3;
const SMALL: usize = 2_000;
const LARGE: usize = 200_000;
/// How many workloads are rolled at once.
const BURST: usize = 300;
const SHORT_BURST: usize = 20;

#[tokio::main]
async fn main() -> Result<()> {
    let short = std::env::args().any(|argument| argument == "--short");
    let asked = std::env::args().find_map(|argument| argument.strip_prefix("--repetitions=").map(str::to_owned));
    let (mut repetitions, burst) = if short { (SHORT_REPETITIONS, SHORT_BURST) } else { (REPETITIONS, BURST) };
    if let Some(number) = asked {
        repetitions = number.parse().context("--repetitions wants a number")?;
    }
    // Without the ReplicaSet controller there are no pods, so that scaling costs no more than the request.
    let flags = ["--controllers=deployment-controller,namespace-controller,serviceaccount-controller"];
    let cluster = Cluster::builder().controller_manager_flags(flags).start().await?;
    println!("{}\n", machine::describe(&cluster.client()).await?);
    let mut confpin = confpin::start(&cluster).await?;

    println!("{repetitions} repetitions, {} with large ConfigMaps:\n", repetitions.min(LARGE_REPETITIONS));
    println!("| request | sources | without | with | added | floor | ratio | p99 added | p99 floor | p99 ratio |");
    println!("|---|---|---|---|---|---|---|---|---|---|");
    for case in cases(repetitions) {
        print_row(case, &latency::measure(&cluster, case).await?);
    }
    let rolled = owners::measure(&cluster, burst).await?;
    println!("\n| rolled at once | reference p50 | p99 | all after | confpin's writes |\n|---|---|---|---|---|");
    let (median, p99) = (rolled.delays.median(), rolled.delays.p99());
    println!("| {burst} | {median:.0} ms | {p99:.0} ms | {:.1?} | {} |", rolled.took, rolled.writes);
    Ok(confpin.kill().await?)
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
    let added = |quantile: f64| times.with.quantile(quantile) - times.without.quantile(quantile);
    let floor = |quantile: f64| match times.floor.quantile(quantile) {
        0.0 => ("–".to_owned(), "–".to_owned()),
        floor => (format!("{floor:.1} ms"), format!("{:.2}", added(quantile) / floor)),
    };
    let ((median, ratio), (p99, p99_ratio)) = (floor(0.5), floor(0.99));
    println!(
        "| {what} | {sources} | {:.1} ms | {:.1} ms | {:.1} ms | {median} | {ratio} | {:.1} ms | {p99} | {p99_ratio} |",
        times.without.median(),
        times.with.median(),
        added(0.5),
        added(0.99),
    );
}
