//! What one replica bears: `cargo bench --bench reviews`.
//!
//! Sends admission reviews to `confpin serve` on one core, with an API server of its own that answers at once from
//! memory, so that confpin is the limit. Tells for each kind of review how many were answered in a second and the
//! processor's time for each, of which the first is limited by the rest of the machine and the second is not. Prints
//! Markdown for `docs/benchmarks.md`. `-- --short` is only to see that it works.

mod api_server;
mod confpin;
mod load;
mod reviews;

use std::time::Duration;

use anyhow::Result;
use api_server::ApiServer;
use confpin::Confpin;
use load::Load;
use reviews::{Kind, review};

const LONG: Duration = Duration::from_secs(8);
const SHORT: Duration = Duration::from_secs(1);
/// How many reviews are under way at a time: as many as keep one core busy.
const PARALLEL: usize = 16;
/// The largest that an API server sends: an object at etcd's limit, and the one that it replaces.
const LARGE: usize = 1_500_000;
const LARGE_PARALLEL: usize = 64;

#[tokio::main]
async fn main() -> Result<()> {
    let lasts = if std::env::args().any(|argument| argument == "--short") { SHORT } else { LONG };
    let folder = tempfile::tempdir()?;
    let api_server = ApiServer::start().await?;
    let confpin = Confpin::start(folder.path(), api_server.port()).await?;
    let load = Load::new(confpin.url(), confpin.certificate())?;
    println!("| review | answered a second | processor time each | a core's worth a second |\n|---|---|---|---|");
    for kind in Kind::ALL {
        let body = review(kind, 0)?;
        load.expect(kind, &body).await?;
        let before = confpin.processor_time()?;
        let (count, took) = load.run(&body, PARALLEL, lasts).await?;
        let each = (confpin.processor_time()? - before).as_secs_f64() / f64::from(count);
        println!(
            "| {kind} | {:.0} | {:.0} µs | {:.0} |",
            f64::from(count) / took.as_secs_f64(),
            each * 1e6,
            1.0 / each
        );
    }
    let before = confpin.peak_mib()?;
    let body = review(Kind::Large, LARGE)?;
    load.expect(Kind::Large, &body).await?;
    load.run(&body, LARGE_PARALLEL, lasts).await?;
    println!(
        "\nMemory: at most {before} MiB with these; at most {} MiB with {LARGE_PARALLEL} at a time of {:.1} MB each.",
        confpin.peak_mib()?,
        body.len() as f64 / 1e6,
    );
    Ok(())
}
