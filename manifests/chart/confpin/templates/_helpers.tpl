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

{{- /* The objects of a file that the code generates, with the chart's labels and with annotations. */ -}}
{{- define "confpin.generated" -}}
{{- $root := .root }}
{{- $annotations := .annotations }}
{{- range splitList "\n---\n" (tpl (.root.Files.Get .file) .root) }}
{{- $object := fromYaml . }}
{{- $_ := set $object.metadata "labels" (include "confpin.labels" $root | fromYaml) }}
{{- with $annotations }}
{{- $_ := set $object.metadata "annotations" . }}
{{- end }}
---
{{ toYaml $object }}
{{ end }}
{{- end }}
