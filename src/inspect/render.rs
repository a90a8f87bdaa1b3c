//! Pins manifests without a cluster: the snapshots that admission would make, under the names that it would give.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::ConfigMap;

use crate::inspect::foresee::{self, Sources};
use crate::inspect::manifests::{self, Edit, File, Object};
use crate::inspect::target::title;
use crate::pin::exempt::Exemptions;
use crate::pin::meta;
use crate::pin::request::{Request, Workload};
use crate::pin::warning::Warning;
use crate::reconcile::index::Key;

/// Why manifests cannot be pinned.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be used.
    #[error(transparent)]
    Manifests(#[from] manifests::Error),
    /// Admission would refuse.
    #[error("{workload}: {cause}")]
    Refused {
        /// The workload.
        workload: String,
        /// Why.
        cause: foresee::Error,
    },
    /// A snapshot cannot be written as YAML.
    #[error("failed to write snapshot {0} as YAML")]
    Yaml(String),
}

/// Manifests with snapshots instead of sources.
#[derive(Debug)]
pub struct Rendered {
    /// The text of all files, one stream of documents.
    pub text: String,
    /// What stayed as it was, and why.
    pub warnings: Vec<String>,
}

/// What the files bring along: by namespace and name, and the namespaces that opt out. `default` is the namespace of
/// objects that say none.
///
/// # Errors
/// When an object is of no form that the API server would take.
pub fn brought(
    files: &[File],
    default: &str,
) -> Result<(BTreeMap<Key, ConfigMap>, BTreeSet<String>), manifests::Error> {
    let (mut configmaps, mut opted_out) = (BTreeMap::new(), BTreeSet::new());
    for file in files {
        for (object, configmap) in file.configmaps()? {
            configmaps.insert(Key::new(object.namespace().unwrap_or(default), object.name()), configmap);
        }
        for (object, namespace) in file.namespaces()? {
            if namespace.metadata.annotations.as_ref().is_some_and(meta::opts_out) {
                opted_out.insert(object.name().to_owned());
            }
        }
    }
    Ok((configmaps, opted_out))
}

/// Pins the workloads of these files.
///
/// # Errors
/// When a file cannot be used, or admission would refuse a workload.
pub async fn render(files: &[File], exemptions: &Exemptions) -> Result<Rendered, Error> {
    let (configmaps, opted_out) = brought(files, "")?;
    let sources = Sources { cluster: None, applied: &configmaps };
    let mut warnings = Vec::new();
    let mut edits: Vec<Vec<Edit<'_>>> = files.iter().map(|_| Vec::new()).collect();
    let mut snapshots: BTreeMap<Key, (Key, ConfigMap)> = BTreeMap::new();
    for (file, edits) in files.iter().zip(&mut edits) {
        for object in &file.objects {
            let Some(kind) = object.workload_kind() else { continue };
            let namespace = object.namespace().unwrap_or_default();
            let workload = title(kind, object.name());
            let new = Workload::of(kind, &object.value).map_err(|_| file.wrong(object, kind.kind))?;
            let namespace_opts_out = opted_out.contains(namespace);
            let request = Request { kind, name: object.name().to_owned(), new, old: None, namespace_opts_out };
            let foreseen = sources.foresee(namespace, &request, exemptions).await;
            let foreseen = foreseen.map_err(|cause| Error::Refused { workload: workload.clone(), cause })?;
            let Some(foreseen) = foreseen else { continue };
            warnings.extend(foreseen.decision.warnings.iter().map(|warning| format!("{workload}: {}", told(warning))));
            edits.extend(foreseen.decision.renames.into_iter().map(|rename| Edit {
                object,
                pointer: format!("{}{}", kind.template_pointer(), rename.pointer),
                from: rename.from,
                to: rename.to,
            }));
            for (name, source) in foreseen.snapshots {
                let mut snapshot = source.snapshot(&name, None);
                snapshot.metadata.namespace = object.namespace().map(str::to_owned);
                snapshots.insert(Key::new(namespace, &name), (Key::new(namespace, &source.name), snapshot));
            }
        }
    }
    snapshots.retain(|key, _| !configmaps.contains_key(key));
    let mut text = String::new();
    for (file, edits) in files.iter().zip(&edits) {
        let edited = file.edited(edits, &added(file, &snapshots)?)?;
        if !text.is_empty() && !edited.starts_with("---") {
            text.push_str("---\n");
        }
        text.push_str(&edited);
    }
    Ok(Rendered { text, warnings })
}

/// The snapshots of the sources that a file has, each after its source.
fn added<'a>(file: &'a File, snapshots: &BTreeMap<Key, (Key, ConfigMap)>) -> Result<Vec<(&'a Object, String)>, Error> {
    let mut found = Vec::new();
    for (object, _) in file.configmaps()? {
        let source = Key::new(object.namespace().unwrap_or_default(), object.name());
        for (key, (_, snapshot)) in snapshots.iter().filter(|(_, (of, _))| *of == source) {
            let yaml = serde_saphyr::to_string(snapshot).map_err(|_| Error::Yaml(key.name.to_string()))?;
            found.push((object, yaml));
        }
    }
    Ok(found)
}

/// The warnings of admission, in words for a user without a cluster.
fn told(warning: &Warning) -> String {
    match warning {
        Warning::SourceMissing { name } => format!("ConfigMap {name} is not in the files, so its name stays"),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "\
apiVersion: v1
kind: ConfigMap
metadata:
  name: app  # the source
  labels: {team: shop}
data:
  level: info
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  template:
    spec:
      volumes:
      - configMap: {name: app}
      - configMap: {name: elsewhere}
      - configMap: {name: kube-root-ca.crt}
";

    async fn rendered(files: &[File]) -> Rendered {
        render(files, &Exemptions::default()).await.expect("rendered")
    }

    #[tokio::test]
    async fn snapshots_come_after_their_sources_and_names_change() {
        let Rendered { text, warnings } = rendered(&[File::parse("f", FILE).expect("YAML")]).await;
        let (configmap, _) = FILE.split_once("---\n").expect("two documents");
        let rest = text.strip_prefix(configmap).expect("the source is unchanged");
        let (snapshot, deployment) = rest.trim_start_matches("---\n").split_once("---\n").expect("a snapshot");
        assert!(snapshot.contains("immutable: true") && !snapshot.contains("team"), "{snapshot}");
        assert!(
            deployment.contains("- configMap: {name: app-") && deployment.contains("{name: elsewhere}"),
            "{deployment}"
        );
        assert!(deployment.contains("{name: kube-root-ca.crt}"), "{deployment}");
        assert_eq!(warnings, ["deployment/web: ConfigMap elsewhere is not in the files, so its name stays"]);
    }

    #[tokio::test]
    async fn rendering_twice_is_rendering_once() {
        let once = rendered(&[File::parse("f", FILE).expect("YAML")]).await.text;
        assert_eq!(rendered(&[File::parse("f", &once).expect("YAML")]).await.text, once);
    }

    #[tokio::test]
    async fn files_become_one_stream() {
        let (configmap, deployment) = FILE.split_once("---\n").expect("two documents");
        let files = [File::parse("d", deployment).expect("YAML"), File::parse("c", configmap).expect("YAML")];
        let text = rendered(&files).await.text;
        assert_eq!(File::parse("all", &text).expect("YAML").objects.len(), 3);
        assert!(text.contains("{name: app-"), "{text}");
    }

    #[tokio::test]
    async fn what_opts_out_stays() {
        for (from, to) in [
            ("labels: {team: shop}", "annotations: {confpin.dev/pin: disabled}"),
            ("{name: web}", "{name: web, annotations: {confpin.dev/pin: disabled}}"),
        ] {
            let file = FILE.replace(from, to);
            assert_eq!(rendered(&[File::parse("f", &file).expect("YAML")]).await.text, file);
        }
    }
}
