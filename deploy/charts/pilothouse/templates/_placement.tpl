{{/* SPDX-License-Identifier: Apache-2.0 */}}
{{/*
A profile, copied here from deploy/scheduler, with what is this cluster's own: the name that pods ask for, the
mode, the account, the Lease, where the scorer and its token are, and the plugin's arguments that the values name.
Everything else stays as it is there.
*/}}
{{- define "pilothouse.scheduler.profile" -}}
{{- $scheduler := .Values.placement.scheduler -}}
{{- $document := .Files.Get (printf "profiles/%s.yaml" $scheduler.profile) | fromYaml -}}
{{- $scorer := "http://pilothouse-scorer.pilothouse-system.svc:10270" -}}
{{- $_ := set $document "clientConnection" (dict "kubeconfig" "") -}}
{{- $_ := set $document "leaderElection" (dict "leaderElect" true "resourceName" "pilothouse-scheduler" "resourceNamespace" "pilothouse-system") -}}
{{- $profile := first $document.profiles -}}
{{- $_ := set $profile "schedulerName" $scheduler.name -}}
{{- range $profile.pluginConfig -}}
{{- if eq .name "PilothousePlacement" -}}
{{- $_ := set .args "mode" $scheduler.mode -}}
{{- $_ := set .args "scorerAddress" $scorer -}}
{{- $_ := set .args "journalAddress" $scorer -}}
{{- $_ := set .args "journalTokenFile" "/etc/pilothouse/scorer/token" -}}
{{- $_ := mergeOverwrite .args ($scheduler.args | default dict) -}}
{{- end -}}
{{- end -}}
{{ toYaml $document }}
{{- end }}
