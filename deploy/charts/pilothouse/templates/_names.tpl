{{/* SPDX-License-Identifier: Apache-2.0 */}}
{{- define "pilothouse.name" -}}pilothouse-observer{{- end }}

{{/* One Pilothouse per cluster: its Lease and its protection go by this namespace. */}}
{{- define "pilothouse.namespace" -}}
{{- if ne .Release.Namespace "pilothouse-system" -}}
{{- fail (printf "Pilothouse lives in the namespace pilothouse-system, but got %q. Add: --namespace pilothouse-system --create-namespace" .Release.Namespace) -}}
{{- end -}}
pilothouse-system
{{- end }}

{{- define "pilothouse.selector" -}}
app.kubernetes.io/name: pilothouse
app.kubernetes.io/component: observer
{{- end }}

{{- define "pilothouse.labels" -}}
{{ include "pilothouse.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end }}

{{- define "pilothouse.image" -}}
{{ include "pilothouse.image-of" (dict "image" .Values.image "version" .Chart.AppVersion) }}
{{- end }}

{{- define "pilothouse.image-of" -}}
{{- if .image.digest -}}
{{ .image.repository }}@{{ .image.digest }}
{{- else -}}
{{ .image.repository }}:{{ .image.tag | default .version }}
{{- end -}}
{{- end }}
