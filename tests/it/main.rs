//! confpin on real programs: a real API server, real controllers, real pods, and `confpin serve` as a user starts it.
//!
//! `cargo test --test it` runs all; `cargo test --test it canary` those with `canary` in their name. The tests share
//! one cluster and one confpin, each in a namespace of its own; those that break something start their own.

mod canary;
mod collection;
mod content;
mod exit;
mod following;
mod foreign;
mod fresh;
mod generated_name;
mod healing;
mod helm;
mod late_kinds;
mod limits;
mod matrix;
mod opt_out;
mod orphans;
mod ownership;
mod paused;
mod plugin;
mod plugin_files;
mod plugin_release;
mod plugin_scale;
mod race;
mod reapply;
mod references;
mod refusals;
mod restarts;
mod rollback;
mod rolling_update;
mod scale;
mod serving;
mod sharing;
mod support;
mod telling;
mod untouched;

use std::process::ExitCode;

fn main() -> ExitCode {
    support::runner::run(&[
        canary::TESTS,
        collection::TESTS,
        content::TESTS,
        exit::TESTS,
        following::TESTS,
        foreign::TESTS,
        fresh::TESTS,
        generated_name::TESTS,
        healing::TESTS,
        helm::TESTS,
        late_kinds::TESTS,
        limits::TESTS,
        matrix::TESTS,
        opt_out::TESTS,
        orphans::TESTS,
        ownership::TESTS,
        paused::TESTS,
        plugin::TESTS,
        plugin_files::TESTS,
        plugin_release::TESTS,
        plugin_scale::TESTS,
        race::TESTS,
        reapply::TESTS,
        references::TESTS,
        refusals::TESTS,
        restarts::TESTS,
        rollback::TESTS,
        rolling_update::TESTS,
        scale::TESTS,
        serving::TESTS,
        sharing::TESTS,
        telling::TESTS,
        untouched::TESTS,
    ])
}
