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
    Shared kubectl_edit,
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

/// How a client says what it wants.
struct Sent {
    /// The arguments of `kubectl`.
    arguments: Vec<String>,
    /// The file that it reads.
    file: Option<Value>,
    /// What it does instead where it opens an editor.
    edit: Option<Edit>,
}

/// A change by `kubectl edit`.
struct Edit {
    /// Changes the file.
    editor: String,
    /// The same as a JSON patch: `kubectl edit` has no dry run, so that of a replacement foretells what comes.
    change: Value,
}

type Client = fn(Kind, Wanted, Wanted) -> Sent;

async fn kubectl_apply(world: &World) -> Result<()> {
    matrix(world, BOTH, |kind, _, wanted| file("apply", kind, wanted)).await
}

async fn kubectl_apply_server_side(world: &World) -> Result<()> {
    matrix(world, BOTH, |kind, _, wanted| file("apply --server-side", kind, wanted)).await
}

async fn kubectl_replace(world: &World) -> Result<()> {
    matrix(world, BOTH, |kind, _, wanted| file("replace", kind, wanted)).await
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

async fn kubectl_edit(world: &World) -> Result<()> {
    matrix(world, BOTH, edit).await
}

/// What `kubectl` is to do, in words parted by blanks.
fn words(text: &str) -> Vec<String> {
    text.split(' ').map(str::to_owned).collect()
}

fn file(command: &str, kind: Kind, wanted: Wanted) -> Sent {
    Sent { arguments: words(command), file: Some(manifest_of(kind, wanted)), edit: None }
}

fn patch(kind: Kind, form: &str, patch: &Value) -> Sent {
    let patch = format!("--patch={patch}");
    let arguments = vec!["patch".into(), kind.plural().into(), "web".into(), format!("--type={form}"), patch];
    Sent { arguments, file: None, edit: None }
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

/// `sed` as the editor. `kubectl` parts the command at blanks, and asks no shell while it has no quotes and backslashes.
fn edit(kind: Kind, was: Wanted, wanted: Wanted) -> Sent {
    let mut editor = String::from("sed --in-place --regexp-extended");
    let mut replace = |expression: String| editor.push_str(&format!(" --expression={expression}"));
    if was.image != wanted.image {
        replace(format!("s/{}$/{}/", was.image, wanted.image));
    } else if was.configuration != wanted.configuration {
        replace("s/app-config-[0-9a-f]{10}$/app-config/".into());
    }
    if was.replicas != wanted.replicas {
        replace(format!("/^spec:/,/^status:/{{/^..replicas:/s/[0-9]+$/{}/}}", wanted.replicas));
    }
    if was.label != wanted.label {
        replace(format!("/^....shop:/s/{}$/{}/", was.label, wanted.label));
    }
    if !editor.contains("--expression") {
        // Somebody looks, and changes nothing.
        editor = "true".into();
    }
    let arguments = vec!["edit".into(), kind.plural().into(), "web".into()];
    Sent { arguments, file: None, edit: Some(Edit { editor, change: json_patch(was, wanted) }) }
}

async fn matrix(world: &World, kinds: &[Kind], client: Client) -> Result<()> {
    for kind in kinds {
        let shop = world.shop("matrix").await?;
        let web = shop.workload(*kind, "web");
        shop.apply([configmap("app-config", FIRST.configuration)]).await?;
        // `apply` of a file that `create` made would warn about a missing annotation.
        let first = client(*kind, FIRST, FIRST).arguments;
        let create = if first[0] == "apply" { first } else { words("create") };
        let send = |options: &[&'static str]| {
            let arguments = create.iter().map(String::as_str).chain(options.iter().copied());
            shop.send(arguments, [manifest_of(*kind, FIRST)]).run()
        };
        let foretold = template_of(&send(&DRY_RUN).await?)?;
        send(&[]).await?;
        ensure!(web.template().await? == foretold, "{web}: the dry run of {create:?} foretold {foretold}");
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

/// What makes a command print what would come, and write nothing.
const DRY_RUN: [&str; 2] = ["--dry-run=server", "--output=json"];

/// The pod template in what `kubectl` printed: an object, or a list of one.
fn template_of(printed: &str) -> Result<Value> {
    let printed: Value = serde_json::from_str(printed).context("kubectl printed no JSON")?;
    Ok(printed["items"].get(0).unwrap_or(&printed)["spec"]["template"].clone())
}

impl Sent {
    async fn run(&self, shop: &Shop<'_>, options: &[&str]) -> Result<String> {
        let arguments = self.arguments.iter().map(String::as_str).chain(options.iter().copied());
        match (&self.file, &self.edit) {
            (Some(object), _) => shop.send(arguments, [object.clone()]).run().await,
            (None, Some(edit)) => shop.kubectl(arguments).environment("KUBE_EDITOR", &edit.editor).run().await,
            (None, None) => shop.kubectl(arguments).run().await,
        }
    }

    /// The template that a dry run says will come.
    async fn foretell(&self, shop: &Shop<'_>, web: &Workload<'_>) -> Result<Value> {
        let Some(edit) = &self.edit else { return template_of(&self.run(shop, &DRY_RUN).await?) };
        let mut object = web.object().await?;
        // Its status may change in between.
        object.metadata.resource_version = None;
        object.metadata.managed_fields = None;
        let mut object = serde_json::to_value(object)?;
        json_patch::patch(&mut object, &serde_json::from_value::<json_patch::Patch>(edit.change.clone())?)?;
        template_of(&shop.send(["replace"].into_iter().chain(DRY_RUN), [object]).run().await?)
    }
}

/// Takes one step, first as a dry run.
async fn take(shop: &Shop<'_>, web: &Workload<'_>, step: &Step, sent: Sent) -> Result<()> {
    shop.apply([configmap("app-config", step.wanted.configuration)]).await?;
    let generation = web.generation().await?;
    let foretold = sent.foretell(shop, web).await?;
    sent.run(shop, &[]).await?;

    let (risen, template) = (web.generation().await? - generation, web.template().await?);
    ensure!(template == foretold, "the dry run foretold {foretold}, got {template}");
    let command = if sent.arguments.len() == 1 { sent.arguments[0].as_str() } else { "" };
    let expected = step.generation(web.kind, command);
    ensure!(risen == expected, "the generation rose by {risen} instead of {expected}");
    let value = web.value().await?;
    ensure!(value == step.wanted.configuration, "it has {value}");
    web.wait_rolled_out().await?;
    let sets = web.replica_sets().await?.len();
    ensure!(sets == step.sets, "there are {sets} ReplicaSets");
    Ok(())
}
