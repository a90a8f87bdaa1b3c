//! Runs the tests of all modules against one cluster, in parallel.

use std::{collections::BTreeMap, env, pin::Pin, process::ExitCode, sync::Mutex};

use anyhow::{Result, anyhow};
use libtest_mimic::{Arguments, Completion, Failed, Trial};
use testcluster::{Cluster, Unavailable};
use tokio::runtime::{Builder, Runtime};

use super::{World, image, rights};

/// How many tests run at a time: most of them wait most of the time.
const PARALLEL: usize = 4;

type Running<'a> = Pin<Box<dyn Future<Output = Result<()>> + 'a>>;

/// One test.
#[derive(Clone, Copy)]
pub struct Case {
    /// Its module and name.
    pub name: &'static str,
    /// Where it runs.
    pub place: Place,
}

/// Where a test runs, and the test itself.
#[derive(Clone, Copy)]
pub enum Place {
    /// In a namespace of the common cluster.
    Shared(for<'a> fn(&'a World) -> Running<'a>),
    /// Likewise, on the node that runs containers.
    Real(for<'a> fn(&'a World) -> Running<'a>),
    /// In a cluster of its own, because it breaks something.
    Own(fn() -> Running<'static>),
    /// Likewise, with confpin's image in it.
    Installed(fn() -> Running<'static>),
    /// Likewise, under a load that wants a machine for itself: run by `cargo test --test it -- --ignored --test-threads=1`.
    Loaded(fn() -> Running<'static>),
}

impl Place {
    /// A trial that is ignored where the test is not for every run.
    fn trial(self, name: &str, run: impl FnOnce() -> Result<Completion, Failed> + Send + 'static) -> Trial {
        Trial::ignorable_test(name, run).with_ignored_flag(matches!(self, Self::Loaded(_)))
    }
}

/// Lists the tests of a module: `tests! { Shared one_thing, Own another_thing }`.
macro_rules! tests {
    (@place Own $name:ident) => { $crate::support::runner::Place::Own(|| Box::pin($name())) };
    (@place Installed $name:ident) => { $crate::support::runner::Place::Installed(|| Box::pin($name())) };
    (@place Loaded $name:ident) => { $crate::support::runner::Place::Loaded(|| Box::pin($name())) };
    (@place $place:ident $name:ident) => { $crate::support::runner::Place::$place(|world| Box::pin($name(world))) };
    ($($place:ident $name:ident),+ $(,)?) => {
        /// The tests of this module.
        pub const TESTS: &[$crate::support::runner::Case] = &[$($crate::support::runner::Case {
            name: concat!(module_path!(), "::", stringify!($name)),
            place: $crate::support::tests!(@place $place $name),
        }),+];
    };
}
pub(crate) use tests;

/// What the tests share, made when the first of them is known to run.
struct Common {
    runtime: Runtime,
    world: Option<World>,
    /// Why there is no real node.
    no_real_node: Option<String>,
    /// The names of the tests, and why.
    skipped: Mutex<Vec<(&'static str, String)>>,
}

/// Runs the tests that the command line asks for.
pub fn run(modules: &[&[Case]]) -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(PARALLEL);
    let mut cases: Vec<Case> = modules.iter().flat_map(|module| module.iter().copied()).collect();
    // Last, since the image takes minutes to be built.
    cases.sort_by_key(|case| matches!(case.place, Place::Installed(_) | Place::Loaded(_)));
    let common = match Common::start(&arguments, &cases) {
        Ok(common) => common,
        Err(error) => {
            eprintln!("failed to start what the tests need: {error:#}");
            return ExitCode::FAILURE;
        }
    };
    // The trials must not borrow, and everything of the cluster has to end before the process does.
    let common = std::sync::Arc::new(common);
    let trials = cases.iter().map(|case| trial(*case, common.clone())).collect();
    let conclusion = libtest_mimic::run(&arguments, trials);
    common.report(conclusion.has_failed());
    common.end();
    drop(common);
    let everything =
        !arguments.list && !conclusion.has_failed() && conclusion.num_filtered_out + conclusion.num_ignored == 0;
    let complaints = rights::complaints(everything);
    complaints.iter().for_each(|complaint| eprintln!("{complaint}"));
    if complaints.is_empty() { conclusion.exit_code() } else { ExitCode::FAILURE }
}

fn trial(case: Case, common: std::sync::Arc<Common>) -> Trial {
    case.place.trial(title(case.name), move || common.run(case).map_err(|error| Failed::from(format!("{error:#}"))))
}

/// The name without the crate's.
fn title(name: &str) -> &str {
    name.split_once("::").map_or(name, |(_, title)| title)
}

impl Common {
    fn start(arguments: &Arguments, cases: &[Case]) -> Result<Self> {
        let runtime = Builder::new_multi_thread().enable_all().build()?;
        let wanted = |case: &&Case| {
            let stand_in = case.place.trial(title(case.name), || Ok(Completion::Completed));
            !arguments.list && !arguments.is_filtered_out(&stand_in) && !arguments.is_ignored(&stand_in)
        };
        let wanted: Vec<&Case> = cases.iter().filter(wanted).collect();
        let real = wanted.iter().any(|case| matches!(case.place, Place::Real(_)));
        let shared = real || wanted.iter().any(|case| matches!(case.place, Place::Shared(_)));
        let mut common = Self { runtime, world: None, no_real_node: None, skipped: Mutex::default() };
        if wanted.iter().any(|case| matches!(case.place, Place::Installed(_) | Place::Loaded(_))) {
            // Begun beside the other tests. Whoever needs it waits for it, and tells what went wrong.
            common.runtime.spawn(image::archive());
        }
        if shared {
            (common.world, common.no_real_node) = common.runtime.block_on(start_world(real))?;
        }
        Ok(common)
    }

    fn run(&self, case: Case) -> Result<Completion> {
        let world = || self.world.as_ref().ok_or_else(|| anyhow!("the common cluster was not started"));
        let done = match (case.place, &self.no_real_node) {
            (Place::Real(_), Some(reason)) => return self.skip(case, reason),
            (Place::Shared(test) | Place::Real(test), _) => self.runtime.block_on(test(world()?)),
            (Place::Own(test) | Place::Installed(test) | Place::Loaded(test), _) => self.runtime.block_on(test()),
        };
        match done {
            Ok(()) => Ok(Completion::Completed),
            // Something that only some tests start, and this machine does not have.
            Err(error) => match error.downcast_ref::<Unavailable>() {
                Some(reason) => self.skip(case, &reason.to_string()),
                None => Err(error),
            },
        }
    }

    fn skip(&self, case: Case, reason: &str) -> Result<Completion> {
        anyhow::ensure!(!no_skip(), "skipped where nothing may be: {reason}");
        if let Ok(mut skipped) = self.skipped.lock() {
            skipped.push((title(case.name), reason.to_owned()));
        }
        Ok(Completion::ignored_with(reason))
    }

    /// Ends confpin by itself, so that its watches are in the audit log.
    fn end(&self) {
        if let Some(world) = &self.world {
            // It may not run: then nothing is left to be logged.
            let _ = self.runtime.block_on(world.confpin.stop());
        }
    }

    fn report(&self, failed: bool) {
        let mut by_reason: BTreeMap<String, Vec<&str>> = BTreeMap::new();
        for (name, reason) in self.skipped.lock().map(|skipped| skipped.clone()).unwrap_or_default() {
            by_reason.entry(reason).or_default().push(name);
        }
        for (reason, names) in by_reason {
            eprintln!("skipped {} tests ({}): {reason}", names.len(), names.join(", "));
        }
        if let (Some(world), true) = (&self.world, failed) {
            world.keep();
        }
    }
}

/// The common cluster, and why it has no real node if it was to have one.
async fn start_world(real: bool) -> Result<(Option<World>, Option<String>)> {
    let fake = || Cluster::builder().fake_node().rollouts();
    // A source that changes soon after its workload would roll it: right for people, and in the way of tests that tell
    // whether something else does.
    let start = async |cluster| World::with_arguments(cluster, &["--settle=0s"]).await;
    if !real {
        return Ok((Some(start(fake()).await?), None));
    }
    match start(fake().real_node()).await {
        Ok(world) => Ok((Some(world), None)),
        Err(error) => match error.downcast_ref::<Unavailable>() {
            Some(reason) => Ok((Some(start(fake()).await?), Some(reason.to_string()))),
            None => Err(error),
        },
    }
}

/// Whether a test that cannot run is a failure.
fn no_skip() -> bool {
    let is_set =
        |name: &str| env::var_os(name).is_some_and(|value| !value.is_empty() && value != "0" && value != "false");
    is_set("CI") || is_set("CONFPIN_TEST_NO_SKIP")
}
