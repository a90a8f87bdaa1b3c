//! confpin on real programs: a real API server, real controllers, real pods, and `confpin serve` as a user starts it.
//!
//! `cargo test --test it` runs all; `cargo test --test it canary` those with `canary` in their name. The tests share
//! one cluster and one confpin, each in a namespace of its own; those that break something start their own.

mod argo_cd;
mod argo_cd_options;
mod argo_cd_page;
mod canary;
mod cert_manager;
mod client_certificates;
mod collection;
mod coming_from;
mod content;
mod exit;
mod flux;
mod following;
mod foreign;
mod forged;
mod fresh;
mod generated_name;
mod healing;
mod helm;
mod installation;
mod installation_parts;
mod installed;
mod kubectl_page;
mod kustomize;
mod late_kinds;
mod limits;
mod matrix;
mod namespaced;
mod opt_out;
mod orphans;
mod outages;
mod ownership;
mod paused;
mod plugin;
mod plugin_files;
mod plugin_release;
mod plugin_scale;
mod policy;
mod race;
mod reapply;
mod references;
mod refusals;
mod reinvocation;
mod requests;
mod restarts;
mod rollback;
mod rolling_update;
mod scale;
mod serving;
mod settling;
mod sharing;
mod strategies;
mod support;
mod telling;
mod untouched;

use std::process::ExitCode;

fn main() -> ExitCode {
    support::runner::run(&[
        argo_cd::TESTS,
        argo_cd_options::TESTS,
        argo_cd_page::TESTS,
        canary::TESTS,
        cert_manager::TESTS,
        client_certificates::TESTS,
        collection::TESTS,
        coming_from::TESTS,
        content::TESTS,
        exit::TESTS,
        flux::TESTS,
        following::TESTS,
        foreign::TESTS,
        forged::TESTS,
        fresh::TESTS,
        generated_name::TESTS,
        healing::TESTS,
        helm::TESTS,
        installed::TESTS,
        installation::TESTS,
        installation_parts::TESTS,
        kubectl_page::TESTS,
        kustomize::TESTS,
        late_kinds::TESTS,
        limits::TESTS,
        matrix::TESTS,
        namespaced::TESTS,
        opt_out::TESTS,
        orphans::TESTS,
        outages::TESTS,
        ownership::TESTS,
        paused::TESTS,
        plugin::TESTS,
        plugin_files::TESTS,
        plugin_release::TESTS,
        plugin_scale::TESTS,
        policy::TESTS,
        race::TESTS,
        reapply::TESTS,
        references::TESTS,
        refusals::TESTS,
        reinvocation::TESTS,
        requests::TESTS,
        restarts::TESTS,
        rollback::TESTS,
        rolling_update::TESTS,
        scale::TESTS,
        serving::TESTS,
        settling::TESTS,
        sharing::TESTS,
        strategies::TESTS,
        telling::TESTS,
        untouched::TESTS,
    ])
}
