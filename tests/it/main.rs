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
mod telling;
mod untouched;

use std::process::ExitCode;

fn main() -> ExitCode {
    // Those that wait long come first, so that others run meanwhile.
    support::runner::run(&[
        race::TESTS,
        following::TESTS,
        canary::TESTS,
        rolling_update::TESTS,
        serving::TESTS,
        late_kinds::TESTS,
        collection::TESTS,
        matrix::TESTS,
        helm::TESTS,
        fresh::TESTS,
        scale::TESTS,
        content::TESTS,
        foreign::TESTS,
        opt_out::TESTS,
        ownership::TESTS,
        reapply::TESTS,
        references::TESTS,
        refusals::TESTS,
        rollback::TESTS,
        telling::TESTS,
        untouched::TESTS,
    ])
}
