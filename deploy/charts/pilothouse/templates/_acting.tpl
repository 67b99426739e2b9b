{{/* SPDX-License-Identifier: Apache-2.0 */}}
{{/* What every account of ours has in common. */}}
{{- define "pilothouse.account" -}}
# Only a pod of ours asks for the token.
automountServiceAccountToken: false
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Who may act: nothing unless the means to take it back are installed too. */}}
{{- define "pilothouse.enforce" -}}
{{- if and .Values.acting.enforce (not .Values.acting.enabled) -}}
{{- fail (printf "acting.enforce is %q, but acting.enabled is false. Install what acting needs, acting.enabled=true, or let nobody act: acting.enforce=." .Values.acting.enforce) -}}
{{- end -}}
{{ .Values.acting.enforce }}
{{- end }}

{{/* The loop's account: the actuator's only while somebody enforces. */}}
{{- define "pilothouse.loop" -}}
{{- if include "pilothouse.enforce" . -}}pilothouse-actuator{{- else -}}{{ include "pilothouse.name" . }}{{- end -}}
{{- end }}

{{/* One setting for the loop, the janitor and the uninstall: who sleeps a machine must be able to wake it. */}}
{{- define "pilothouse.power-hook" -}}
{{ dig "act" "power_hook" "" .Values.config }}
{{- end }}

{{- define "pilothouse.power-hook-egress" -}}
{{- $hook := include "pilothouse.power-hook" . -}}
{{- if and .Values.acting.enabled (regexMatch "^https?://" $hook) -}}
{{- $address := urlParse $hook -}}
{{- $port := regexFind ":[0-9]+$" $address.host | trimPrefix ":" | default (ternary "443" "80" (eq $address.scheme "https")) }}
- ports:
    - {protocol: TCP, port: {{ $port }}}
{{- end -}}
{{- end }}

{{- define "pilothouse.janitor.selector" -}}
app.kubernetes.io/name: pilothouse
app.kubernetes.io/component: janitor
{{- end }}

{{/* A pod that takes back, from tickets alone; .command is what it runs. */}}
{{- define "pilothouse.janitor.pod" -}}
serviceAccountName: pilothouse-janitor
automountServiceAccountToken: true
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  seccompProfile: {type: RuntimeDefault}
containers:
  - name: janitor
    image: {{ include "pilothouse.image" .root }}
    imagePullPolicy: {{ .root.Values.image.pullPolicy }}
    args:
      {{- range .command }}
      - {{ . }}
      {{- end }}
      {{- with include "pilothouse.power-hook" .root }}
      - {{ print "--power-hook=" . | quote }}
      {{- end }}
    securityContext:
      allowPrivilegeEscalation: false
      readOnlyRootFilesystem: true
      capabilities: {drop: [ALL]}
    resources:
      {{- toYaml .root.Values.acting.janitor.resources | nindent 6 }}
    volumeMounts:
      - {name: scratch, mountPath: /tmp}
volumes:
  - name: scratch
    emptyDir: {sizeLimit: 16Mi}
{{- with .root.Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- end }}
