//! `kubectl confpin render` and `preview`: what they say about manifests is what happens when these are applied.

use std::fs;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use testcluster::wait_for;

use crate::support::{
    SOON, Shop, World, configmap, deployment,
    plugin::{Told, assert_told},
    tests,
};

tests! {
    Shared rendered_names_are_those_that_the_webhook_gives,
    Shared preview_tells_what_an_apply_does_and_writes_nothing,
    Shared preview_and_render_take_directories_and_kustomizations,
}

/// A file as people write them.
const FILE: &str = r#"# The shop's configuration.
apiVersion: v1
kind: ConfigMap
metadata:
  name: app-config   # mounted by both
  labels: {team: shop}
data:
  app.ini: |
    [server]
    port = 80

  folded: >-
    one
    line
  "quoted": "tab\tand \u00fc"
binaryData: {logo: AP8=}
---
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: ConfigMap
  metadata: {name: features}
  data: {beta: "yes"}
- apiVersion: apps/v1
  kind: Deployment
  metadata: {name: web}
  spec:
    replicas: 0
    selector: {matchLabels: {app: web}}
    template:
      metadata: {labels: {app: web}}
      spec:
        initContainers:
        - name: init
          image: web:1
          env:
          - name: BETA
            valueFrom: {configMapKeyRef: {name: "features", key: 'beta'}}
        containers:
        - name: main
          image: web:1   # pinned by hand
          envFrom: [{configMapRef: {name: app-config}}]
        volumes:
        - name: all
          projected:
            sources:
            - configMap:
                name: 'app-config'
            - configMap: {name: kube-root-ca.crt}
---
apiVersion: argoproj.io/v1alpha1
kind: Rollout
metadata:
  name: shop
spec:
  replicas: 0
  strategy: {canary: {}}
  selector: {matchLabels: {app: shop}}
  template:
    metadata: {labels: {app: shop}}
    spec:
      containers: [{name: main, image: "shop:1", resources: {}}]
      volumes:
      - name: config
        configMap:
          name: app-config
          # as before
          defaultMode: 0400
"#;

async fn rendered_names_are_those_that_the_webhook_gives(world: &World) -> Result<()> {
    let shop = world.shop("render").await?;
    let rendered = render(&shop, FILE).await?;
    assert_eq!((rendered.code, rendered.stderr.as_str()), (0, ""));
    assert_told!(shop, "rendered manifests", rendered.stdout.clone());
    assert_eq!(render(&shop, &rendered.stdout).await?.stdout, rendered.stdout, "rendering twice is rendering once");

    // The webhook makes of the same file the same names and the same content.
    shop.kubectl(["apply", "-f", "-"]).stdin(FILE).run().await?;
    let without = world.unlabelled_shop("rendered").await?;
    without.kubectl(["apply", "-f", "-"]).stdin(rendered.stdout.clone()).run().await?;
    assert_eq!(without.deployment("web").names().await?, shop.deployment("web").names().await?);
    assert_eq!(without.rollout("shop").names().await?, shop.rollout("shop").names().await?);
    let (made, rendered_ones) = (shop.snapshots().await?, without.snapshots().await?);
    assert_eq!(made.len(), 2);
    for (name, snapshot) in &made {
        let rendered = rendered_ones.get(name).with_context(|| format!("{name} was not rendered"))?;
        assert_eq!((&rendered.data, &rendered.binary_data), (&snapshot.data, &snapshot.binary_data));
        assert_eq!(rendered.immutable, Some(true));
    }
    // And where there is a webhook, what was rendered is taken as it is.
    let template = shop.deployment("web").template().await?;
    shop.kubectl(["apply", "-f", "-"]).stdin(rendered.stdout).run().await?;
    assert_eq!(shop.deployment("web").template().await?, template);
    Ok(())
}

async fn render(shop: &Shop<'_>, input: &str) -> Result<Told> {
    shop.plugin_offline("render -f -", input).await
}

fn file(objects: &[Value]) -> String {
    objects.iter().map(Value::to_string).collect::<Vec<_>>().join("\n---\n")
}

async fn preview_tells_what_an_apply_does_and_writes_nothing(world: &World) -> Result<()> {
    let shop = world.shop("preview").await?;
    let get_list: &[&str] = &["get", "list"];
    let reader = shop
        .user(
            "reader",
            &[
                ("", "configmaps", get_list),
                ("", "namespaces", &["get"]),
                ("apps", "deployments", get_list),
                ("apps", "replicasets", get_list),
                ("argoproj.io", "rollouts", get_list),
            ],
        )
        .await?;
    let web = |name: &str, uses: &str| deployment(name).replicas(0).uses(uses);
    let follower = web("follower", "app-config").with(|object| {
        object["metadata"]["annotations"] = json!({"confpin.dev/rollout": "on-change"});
    });
    shop.apply([
        configmap("app-config", "1"),
        configmap("features", "1"),
        web("web", "app-config").json(),
        web("other", "features").json(),
        web("image", "features").json(),
        follower.json(),
    ])
    .await?;
    for name in ["web", "other", "image", "follower"] {
        shop.deployment(name).wait_rolled_out().await?;
    }
    let files = file(&[
        web("web", "app-config").json(),
        web("other", "features").json(),
        web("image", "features").image("web:2").json(),
        web("new", "app-config").json(),
        configmap("app-config", "2"),
    ]);
    let mark = shop.mark().await?;
    let told = shop.plugin_with("preview -f -", &files, &reader).await?;
    assert_told!(shop, "preview", told.text()?);
    let writes = shop.since(&mark).await?.writes();
    assert!(!writes.iter().any(|write| write.contains("kubectl-confpin")), "{writes:?}");

    // So it comes.
    let json = shop.plugin_with("preview -f - -o json", &files, &reader).await?.stdout;
    let previews: Vec<Value> = serde_json::from_str(&json)?;
    let to = |workload: &str| {
        let preview = previews.iter().find(|preview| preview["workload"] == workload).context("a preview")?;
        Ok::<_, anyhow::Error>(preview["configuration"][0]["to"].as_str().unwrap_or_default().to_owned())
    };
    shop.kubectl(["apply", "-f", "-"]).stdin(files.clone()).run().await?;
    // A file after its workload: the ConfigMap that is applied last counts with the next apply.
    shop.kubectl(["apply", "-f", "-"]).stdin(files.clone()).run().await?;
    assert_eq!(shop.deployment("web").name().await?, to("deployment/web")?);
    assert_eq!(shop.deployment("other").generation().await?, 1);
    assert_eq!(shop.deployment("image").generation().await?, 2);
    wait_for("the follower to follow", SOON, async || {
        Ok((shop.deployment("follower").name().await? == to("deployment/follower")?).then_some(()))
    })
    .await?;
    let told = shop.plugin_with("preview -f -", &files, &reader).await?;
    assert_eq!((told.code, told.stdout.lines().last()), (0, Some("4 workloads, 0 of them new, 0 to roll")));
    Ok(())
}

async fn preview_and_render_take_directories_and_kustomizations(world: &World) -> Result<()> {
    let shop = world.shop("folders").await?;
    let folder = world.cluster.folder().join(shop.name());
    fs::create_dir_all(folder.join("inner"))?;
    fs::write(folder.join("b.yaml"), deployment("web").uses("app-config").json().to_string())?;
    fs::write(folder.join("a.json"), configmap("app-config", "1").to_string())?;
    fs::write(folder.join("notes.txt"), "no manifest: [")?;
    fs::write(folder.join("inner/c.yml"), deployment("inner").uses("app-config").json().to_string())?;
    let path = folder.display();

    let told = shop.plugin_offline(&format!("render -f {path}"), "").await?;
    assert_eq!(told.stdout.matches("app-config-").count(), 2, "{}", told.stdout);
    let told = shop.plugin_offline(&format!("render -R -f {path}"), "").await?;
    assert_eq!(told.stdout.matches("app-config-").count(), 3, "{}", told.stdout);

    let kustomization = "resources: [a.json, b.yaml]\nimages: [{name: shop.example/web, newTag: '2'}]\n";
    fs::write(folder.join("kustomization.yaml"), kustomization)?;
    let told = shop.plugin_offline(&format!("render -k {path}"), "").await?;
    assert!(told.stdout.contains("shop.example/web:2") && told.stdout.contains("app-config-"), "{told:?}");
    let told = shop.plugin(&format!("preview -k {path}")).await?;
    assert_eq!(
        (told.code, told.stdout.as_str()),
        (0, "deployment/web is created\n1 workload, 1 of them new, 0 to roll\n")
    );

    assert_eq!(shop.plugin_offline("render", "").await?.code, 64);
    let told = shop.plugin_offline("render -f nowhere.yaml", "").await?;
    assert_eq!(told.code, 2);
    assert!(told.stderr.contains("failed to read nowhere.yaml"), "{}", told.stderr);
    let told = shop.plugin_offline("render -f -", "a: [\n").await?;
    assert_eq!(told.code, 2);
    assert!(told.stderr.contains("failed to read standard input"), "{}", told.stderr);
    Ok(())
}
