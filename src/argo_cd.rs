//! What Argo CD has to be told where it compares by itself (its three-way diff): the names that admission changes.
//! Its server-side diff asks the API server, so confpin too, and needs none of this.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::ObjectMeta;

use crate::pin::kinds::{WORKLOADS, WorkloadKind};
use crate::pin::webhook_configuration::NAME;

/// Key of Argo CD's settings, before `<group>_<kind>`.
const IGNORE: &str = "resource.customizations.ignoreDifferences";

/// Every place of a pod template that names a ConfigMap, as `jq` takes it: those of [`crate::pin::references`].
const NAMES: [&str; 6] = [
    ".spec.volumes[]?.configMap.name",
    ".spec.volumes[]?.projected.sources[]?.configMap.name",
    ".spec.initContainers[]?.envFrom[]?.configMapRef.name",
    ".spec.initContainers[]?.env[]?.valueFrom.configMapKeyRef.name",
    ".spec.containers[]?.envFrom[]?.configMapRef.name",
    ".spec.containers[]?.env[]?.valueFrom.configMapKeyRef.name",
];

/// A patch of Argo CD's settings, the ConfigMap `argocd-cm`: differences of these fields do not make an Application
/// `OutOfSync`. They are the names of ConfigMaps in the workloads, and the CA that confpin writes into its own webhook
/// configuration.
#[must_use]
pub fn settings_patch() -> ConfigMap {
    let workload = |kind: &&WorkloadKind| {
        let template: String = kind.template.iter().flat_map(|field| [".", field]).collect();
        (format!("{IGNORE}.{}_{}", kind.group, kind.kind), ignored(NAMES.map(|name| format!("{template}{name}"))))
    };
    let ca = format!(r#"select(.metadata.name == "{NAME}").webhooks[]?.clientConfig.caBundle"#);
    let registration = format!("{IGNORE}.admissionregistration.k8s.io_MutatingWebhookConfiguration");
    let data = WORKLOADS.iter().map(workload).chain([(registration, ignored([ca]))]);
    ConfigMap {
        metadata: ObjectMeta { name: Some("argocd-cm".to_owned()), ..ObjectMeta::default() },
        data: Some(data.collect::<BTreeMap<_, _>>()),
        ..ConfigMap::default()
    }
}

/// The value of a setting, which is YAML in a text.
fn ignored(paths: impl IntoIterator<Item = String>) -> String {
    let lines = paths.into_iter().map(|path| format!("- '{path}'\n"));
    ["jqPathExpressions:\n".to_owned()].into_iter().chain(lines).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::json;

    use super::*;
    use crate::pin::references::references;

    #[test]
    fn every_reference_is_among_the_names() {
        let name = json!({"name": "app-config"});
        let container = json!({
            "envFrom": [{"configMapRef": name}],
            "env": [{"name": "KEY", "valueFrom": {"configMapKeyRef": name}}],
        });
        let template = json!({"spec": {
            "volumes": [{"configMap": name}, {"projected": {"sources": [{"configMap": name}]}}],
            "initContainers": [container],
            "containers": [container],
        }});
        let found: BTreeSet<String> = references(&template).into_iter().map(|found| jq(&found.pointer)).collect();
        assert_eq!(found, NAMES.map(str::to_owned).into());
    }

    /// `/spec/volumes/0/configMap/name` as `.spec.volumes[]?.configMap.name`.
    fn jq(pointer: &str) -> String {
        let fields = pointer.split('/').skip(1);
        fields.map(|field| if field.parse::<usize>().is_ok() { "[]?".into() } else { format!(".{field}") }).collect()
    }
}
