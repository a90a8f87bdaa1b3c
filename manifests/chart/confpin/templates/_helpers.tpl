{{- define "confpin.labels" -}}
app.kubernetes.io/name: confpin
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "confpin.selector" -}}
app.kubernetes.io/name: confpin
{{- end }}

{{- define "confpin.metadata" -}}
name: {{ .name | default "confpin" }}
namespace: {{ .root.Release.Namespace }}
labels:
  {{- include "confpin.labels" .root | nindent 2 }}
{{- end }}

{{- /* The objects of a file that the code generates, with the chart's labels and in the namespace that is given, if any.
       Those that are in no namespace have the suffix, and are the administrator's part; the others are the team's. */ -}}
{{- define "confpin.generated" -}}
{{- $root := .root }}
{{- $namespace := .namespace }}
{{- range splitList "\n---\n" (tpl (.root.Files.Get .file) .root) }}
{{- $object := fromYaml . }}
{{- $_ := set $object.metadata "labels" (include "confpin.labels" $root | fromYaml) }}
{{- with $namespace }}
{{- $_ := set $object.metadata "namespace" . }}
{{- end }}
{{- $teams := hasKey $object.metadata "namespace" }}
{{- if not $teams }}
{{- $_ := set $object.metadata "name" (print $object.metadata.name $root.Values.nameSuffix) }}
{{- if $object.roleRef }}
{{- $_ := set $object.roleRef "name" (print $object.roleRef.name $root.Values.nameSuffix) }}
{{- else if eq $object.kind "ValidatingAdmissionPolicyBinding" }}
{{- $_ := set $object.spec "policyName" (print $object.spec.policyName $root.Values.nameSuffix) }}
{{- end }}
{{- end }}
{{- if has $root.Values.part (list "all" (ternary "team" "administrator" $teams)) }}
---
{{ toYaml $object }}
{{ end }}
{{- end }}
{{- end }}
