//! The policy for workloads: confpin sets its own annotations and leaves everything else alone.
//!
//! A policy sees an object after all mutating admission, and so the refresh of a workload together with what confpin's
//! own webhook made of it: other names of ConfigMaps in the template, and a new record. So in namespaces that are
//! pinned, the names of ConfigMaps may differ; CEL compares what is left when they are taken out.

use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicy;

use super::{rule, same_entries, same_fields, validation, variable};
use crate::pin::kinds::WorkloadKind;
use crate::pin::meta;

pub(super) fn policy(kind: &WorkloadKind, namespace: &str) -> ValidatingAdmissionPolicy {
    let path = |object: &str| format!("{object}{}.orValue({{}})", optional_path(kind.template));
    let is_ours = format!("k in [\"{}\", \"{}\"]", meta::REFRESH, meta::RECORD);
    let is_pinned =
        format!("namespaceObject.metadata.?labels[?\"{}\"].orValue(\"\") == \"{}\"", meta::PIN, meta::ENABLED);
    let same_metadata = same_fields(&["labels", "ownerReferences", "finalizers"]);
    super::policy(
        &format!("confpin-{}", kind.plural),
        namespace,
        rule(kind.group, kind.version, &[kind.plural], &["UPDATE"]),
        vec![
            variable("annotations", "object.metadata.?annotations.orValue({})"),
            variable("oldAnnotations", "oldObject.metadata.?annotations.orValue({})"),
            variable("template", &path("object")),
            variable("oldTemplate", &path("oldObject")),
            variable("pod", "variables.template.?spec.orValue({})"),
            variable("oldPod", "variables.oldTemplate.?spec.orValue({})"),
            variable("sameBesidesTemplate", &same_besides_template(kind)),
            variable("samePodBesidesNames", &same_pod_besides_names()),
        ],
        vec![
            validation(
                &format!(
                    "object.?spec == oldObject.?spec || \
                     ({is_pinned} && variables.sameBesidesTemplate && variables.samePodBesidesNames)"
                ),
                "confpin changes nothing of a workload's spec but the names of ConfigMaps, and these only where it pins",
            ),
            validation(
                &format!(
                    "{same_metadata} && {}",
                    same_entries("variables.annotations", "variables.oldAnnotations", &is_ours)
                ),
                "confpin changes nothing of a workload's metadata but its own annotations",
            ),
        ],
    )
}

/// `.?spec.?template`.
fn optional_path(fields: &[&str]) -> String {
    fields.iter().flat_map(|field| [".?", field]).collect()
}

/// Whether the spec is unchanged except for the pod template's spec.
fn same_besides_template(kind: &WorkloadKind) -> String {
    let level = |end: usize| {
        let path = optional_path(&kind.template[..end]);
        let but = format!("k == \"{}\"", kind.template[end]);
        same_entries(&format!("object{path}.orValue({{}})"), &format!("oldObject{path}.orValue({{}})"), &but)
    };
    let levels = (1..kind.template.len()).map(level);
    let template = same_entries("variables.template", "variables.oldTemplate", "k == \"spec\"");
    levels.chain([template]).collect::<Vec<_>>().join(" && ")
}

fn same_pod_besides_names() -> String {
    let others =
        same_entries("variables.pod", "variables.oldPod", "k in [\"volumes\", \"initContainers\", \"containers\"]");
    let [volumes, old_volumes] = ["variables.pod", "variables.oldPod"].map(volumes);
    let [init, containers] = ["initContainers", "containers"].map(same_containers);
    format!("{others} && {volumes} == {old_volumes} && {init} && {containers}")
}

/// A pod's volumes, without the names of ConfigMaps.
fn volumes(pod: &str) -> String {
    let source = "[dyn(s.configMap.?items), dyn(s.configMap.?optional)]";
    let sources = format!("v.projected.sources.map(s, has(s.configMap) ? dyn({source}) : dyn(s))");
    let volume = "[dyn(v.name), dyn(v.configMap.?items), dyn(v.configMap.?optional), dyn(v.configMap.?defaultMode)]";
    format!(
        "{pod}.?volumes.orValue([]).map(v, has(v.configMap) ? dyn({volume}) : has(v.projected) && \
         has(v.projected.sources) ? dyn([dyn(v.name), dyn(v.projected.?defaultMode), dyn({sources})]) : dyn(v))"
    )
}

/// Whether a pod's containers of one sort are the same, and in the same order, except for the names of ConfigMaps.
fn same_containers(field: &str) -> String {
    let [new, old] = ["variables.pod", "variables.oldPod"].map(|pod| format!("{pod}.?{field}.orValue([])"));
    let others = same_entries("c", "o", "k in [\"env\", \"envFrom\"]");
    let [env, old_env] = ["c", "o"].map(env);
    let [env_from, old_env_from] = ["c", "o"].map(env_from);
    format!(
        "{new}.map(c, c.name) == {old}.map(o, o.name) && {new}.all(c, {old}.exists(o, o.name == c.name && {others} && \
         {env} == {old_env} && {env_from} == {old_env_from}))"
    )
}

fn env(container: &str) -> String {
    let reference = "e.valueFrom.configMapKeyRef";
    format!(
        "{container}.?env.orValue([]).map(e, has(e.valueFrom) && has({reference}) ? \
         dyn([dyn(e.name), dyn({reference}.?key), dyn({reference}.?optional)]) : dyn(e))"
    )
}

fn env_from(container: &str) -> String {
    format!(
        "{container}.?envFrom.orValue([]).map(e, has(e.configMapRef) ? \
         dyn([dyn(e.?prefix), dyn(e.configMapRef.?optional)]) : dyn(e))"
    )
}
