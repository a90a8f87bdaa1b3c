//! Client × change: whoever changes a workload, each change ends on the expected configuration with the expected
//! number of ReplicaSets, and the dry run foretold it.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::support::{Kind, Shop, Workload, World, configmap, manifest, tests};

tests! {
    Shared kubectl_apply,
    Shared kubectl_apply_server_side,
    Shared kubectl_replace,
    Shared kubectl_patch_strategic,
    Shared kubectl_patch_merge,
    Shared kubectl_patch_json,
}

const BOTH: &[Kind] = &[Kind::Deployment, Kind::Rollout];

/// What a workload is to be.
#[derive(Debug, Clone, Copy)]
struct Wanted {
    configuration: &'static str,
    image: &'static str,
    replicas: u32,
    label: &'static str,
}

/// A change, and what it does.
struct Step {
    name: &'static str,
    wanted: Wanted,
    /// The ReplicaSets that there are afterwards.
    sets: usize,
    /// By how much the generation rises, unless the client changes annotations.
    generation: i64,
}

impl Step {
    /// The generation of a Deployment, and of no other kind, counts changes of its annotations too. `kubectl apply`
    /// writes the manifest into one, `kubectl replace` takes away those that the controller wrote.
    fn generation(&self, kind: Kind, command: &str) -> i64 {
        let annotates = match command {
            "apply" => self.name == "label",
            "replace" => true,
            _ => false,
        };
        self.generation.max(i64::from(annotates && kind == Kind::Deployment))
    }
}

const FIRST: Wanted = Wanted { configuration: "v1", image: "web:1", replicas: 1, label: "a" };

/// One change after the other.
fn steps() -> Vec<Step> {
    let image = Wanted { image: "web:2", ..FIRST };
    let configuration = Wanted { configuration: "v2", ..image };
    let both = Wanted { configuration: "v3", image: "web:3", ..FIRST };
    let scaled = Wanted { replicas: 2, ..configuration };
    let labelled = Wanted { label: "b", ..scaled };
    [
        ("nothing", FIRST, 1, 0),
        ("image", image, 2, 1),
        ("configuration", configuration, 3, 1),
        ("both", both, 4, 1),
        ("back to old", configuration, 4, 1),
        ("scale", scaled, 4, 1),
        ("label", labelled, 4, 0),
        ("nothing again", labelled, 4, 0),
    ]
    .map(|(name, wanted, sets, generation)| Step { name, wanted, sets, generation })
    .into()
}

fn manifest_of(kind: Kind, wanted: Wanted) -> Value {
    let manifest = manifest::workload(kind, "web").uses("app-config").env_from("app-config");
    let manifest = manifest.image(wanted.image).replicas(wanted.replicas);
    manifest.with(|object| object["metadata"]["labels"] = json!({"shop": wanted.label})).json()
}

/// How a client says what it wants: the arguments of `kubectl`, and the file that it reads.
type Client = fn(Kind, Wanted, Wanted) -> (Vec<String>, Option<Value>);

async fn kubectl_apply(world: &World) -> Result<()> {
    matrix(world, BOTH, |kind, _, wanted| (words("apply"), Some(manifest_of(kind, wanted)))).await
}

async fn kubectl_apply_server_side(world: &World) -> Result<()> {
    matrix(world, BOTH, |kind, _, wanted| (words("apply --server-side"), Some(manifest_of(kind, wanted)))).await
}

async fn kubectl_replace(world: &World) -> Result<()> {
    matrix(world, BOTH, |kind, _, wanted| (words("replace"), Some(manifest_of(kind, wanted)))).await
}

async fn kubectl_patch_strategic(world: &World) -> Result<()> {
    // Custom resources have no strategic patch.
    matrix(world, &[Kind::Deployment], |kind, was, wanted| patch(kind, "strategic", &strategic_patch(was, wanted)))
        .await
}

async fn kubectl_patch_merge(world: &World) -> Result<()> {
    matrix(world, BOTH, |kind, was, wanted| patch(kind, "merge", &merge_patch(kind, was, wanted))).await
}

async fn kubectl_patch_json(world: &World) -> Result<()> {
    matrix(world, BOTH, |kind, was, wanted| patch(kind, "json", &json_patch(was, wanted))).await
}

/// What `kubectl` is to do, in words parted by blanks.
fn words(text: &str) -> Vec<String> {
    text.split(' ').map(str::to_owned).collect()
}

fn patch(kind: Kind, form: &str, patch: &Value) -> (Vec<String>, Option<Value>) {
    let patch = format!("--patch={patch}");
    (vec!["patch".into(), kind.plural().into(), "web".into(), format!("--type={form}"), patch], None)
}

/// Only what changes; for another configuration alone, the source's name.
fn strategic_patch(was: Wanted, wanted: Wanted) -> Value {
    let mut patch = json!({});
    if was.image != wanted.image {
        patch["spec"]["template"]["spec"]["containers"] = json!([{"name": "main", "image": wanted.image}]);
    } else if was.configuration != wanted.configuration {
        patch["spec"]["template"]["spec"]["volumes"] = json!([{"name": "v0", "configMap": {"name": "app-config"}}]);
    }
    with_metadata(patch, was, wanted)
}

/// Lists are sent whole.
fn merge_patch(kind: Kind, was: Wanted, wanted: Wanted) -> Value {
    let mut patch = json!({});
    if (was.image, was.configuration) != (wanted.image, wanted.configuration) {
        let containers = manifest_of(kind, wanted)["spec"]["template"]["spec"]["containers"].clone();
        patch["spec"]["template"]["spec"]["containers"] = containers;
    }
    with_metadata(patch, was, wanted)
}

fn with_metadata(mut patch: Value, was: Wanted, wanted: Wanted) -> Value {
    if was.replicas != wanted.replicas {
        patch["spec"]["replicas"] = wanted.replicas.into();
    }
    if was.label != wanted.label {
        patch["metadata"]["labels"]["shop"] = wanted.label.into();
    }
    patch
}

fn json_patch(was: Wanted, wanted: Wanted) -> Value {
    let mut patch = Vec::new();
    let mut replace = |path: &str, value: Value| patch.push(json!({"op": "replace", "path": path, "value": value}));
    if was.image != wanted.image {
        replace("/spec/template/spec/containers/0/image", wanted.image.into());
    } else if was.configuration != wanted.configuration {
        replace("/spec/template/spec/volumes/0/configMap/name", "app-config".into());
    }
    if was.replicas != wanted.replicas {
        replace("/spec/replicas", wanted.replicas.into());
    }
    if was.label != wanted.label {
        replace("/metadata/labels/shop", wanted.label.into());
    }
    json!(patch)
}

async fn matrix(world: &World, kinds: &[Kind], client: Client) -> Result<()> {
    for kind in kinds {
        let shop = world.shop("matrix").await?;
        let web = shop.workload(*kind, "web");
        shop.apply([configmap("app-config", FIRST.configuration)]).await?;
        // `apply` of a file that `create` made would warn about a missing annotation.
        let (first, _) = client(*kind, FIRST, FIRST);
        let create = if first[0] == "apply" { first } else { words("create") };
        shop.send(create.iter().map(String::as_str), [manifest_of(*kind, FIRST)]).run().await?;
        web.wait_rolled_out().await?;

        let mut was = FIRST;
        for step in steps() {
            let cell = format!("{web}, {}", step.name);
            take(&shop, &web, &step, client(*kind, was, step.wanted)).await.with_context(|| cell)?;
            was = step.wanted;
        }
        shop.wait_owned().await?;
    }
    Ok(())
}

/// Takes one step, first as a dry run.
async fn take(shop: &Shop<'_>, web: &Workload<'_>, step: &Step, sent: (Vec<String>, Option<Value>)) -> Result<()> {
    let (arguments, file) = sent;
    let run = async |options: &[&str]| {
        let arguments = arguments.iter().map(String::as_str).chain(options.iter().copied());
        match &file {
            Some(object) => shop.send(arguments, [object.clone()]).run().await,
            None => shop.kubectl(arguments).run().await,
        }
    };
    shop.apply([configmap("app-config", step.wanted.configuration)]).await?;
    let generation = web.generation().await?;
    let foretold: Value = serde_json::from_str(&run(&["--dry-run=server", "--output=json"]).await?)?;
    let foretold = foretold["items"].get(0).unwrap_or(&foretold)["spec"]["template"].clone();
    run(&[]).await?;

    let (risen, template) = (web.generation().await? - generation, web.template().await?);
    ensure!(template == foretold, "the dry run foretold {foretold}, got {template}");
    let command = if arguments.len() == 1 { arguments[0].as_str() } else { "" };
    let expected = step.generation(web.kind, command);
    ensure!(risen == expected, "the generation rose by {risen} instead of {expected}");
    let value = web.value().await?;
    ensure!(value == step.wanted.configuration, "it has {value}");
    web.wait_rolled_out().await?;
    let sets = web.replica_sets().await?.len();
    ensure!(sets == step.sets, "there are {sets} ReplicaSets");
    Ok(())
}
