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
       Those that are in no namespace are the administrator's part, the others the team's. */ -}}
{{- define "confpin.generated" -}}
{{- $root := .root }}
{{- $namespace := .namespace }}
{{- range splitList "\n---\n" (tpl (.root.Files.Get .file) .root) }}
{{- $object := fromYaml . }}
{{- $_ := set $object.metadata "labels" (include "confpin.labels" $root | fromYaml) }}
{{- with $namespace }}
{{- $_ := set $object.metadata "namespace" . }}
{{- end }}
{{- if has $root.Values.part (list "all" (ternary "team" "administrator" (hasKey $object.metadata "namespace"))) }}
---
{{ toYaml $object }}
{{ end }}
{{- end }}
{{- end }}
