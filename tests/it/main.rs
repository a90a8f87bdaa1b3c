//! confpin on real programs: a real API server, real controllers, real pods, and `confpin serve` as a user starts it.
//!
//! `cargo test --test it` runs all; `cargo test --test it canary` those with `canary` in their name. The tests share
//! one cluster and one confpin, each in a namespace of its own; those that break something start their own.

mod canary;
mod collection;
mod content;
mod following;
mod foreign;
mod fresh;
mod helm;
mod late_kinds;
mod matrix;
mod opt_out;
mod ownership;
mod race;
mod reapply;
mod references;
mod refusals;
mod rollback;
mod rolling_update;
mod scale;
mod serving;
mod support;
mod untouched;

use std::process::ExitCode;

fn main() -> ExitCode {
    support::runner::run(&[
        canary::TESTS,
        collection::TESTS,
        content::TESTS,
        following::TESTS,
        foreign::TESTS,
        fresh::TESTS,
        helm::TESTS,
        late_kinds::TESTS,
        matrix::TESTS,
        opt_out::TESTS,
        ownership::TESTS,
        race::TESTS,
        reapply::TESTS,
        references::TESTS,
        refusals::TESTS,
        rollback::TESTS,
        rolling_update::TESTS,
        scale::TESTS,
        serving::TESTS,
        untouched::TESTS,
    ])
}
