//! confpin on real programs: a real API server, real controllers, real pods, and `confpin serve` as a user starts it.
//!
//! `cargo test --test it` runs all; `cargo test --test it canary` those with `canary` in their name. The tests share
//! one cluster and one confpin, each in a namespace of its own; those that break something start their own.

mod collection;
mod content;
mod fresh;
mod foreign;
mod late_kinds;
mod opt_out;
mod ownership;
mod reapply;
mod references;
mod refusals;
mod support;
mod untouched;

use std::process::ExitCode;

fn main() -> ExitCode {
    support::runner::run(&[
        collection::TESTS,
        content::TESTS,
        foreign::TESTS,
        fresh::TESTS,
        late_kinds::TESTS,
        opt_out::TESTS,
        ownership::TESTS,
        reapply::TESTS,
        references::TESTS,
        refusals::TESTS,
        untouched::TESTS,
    ])
}
