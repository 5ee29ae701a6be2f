{{- define "llm-router.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "llm-router.bodylog" -}}
{{- .Values.bodylog.nameOverride | default (printf "%s-bodylog" (include "llm-router.fullname" .)) -}}
{{- end -}}

{{- define "llm-router.keys" -}}
{{- .Values.keys.existingSecret | default (printf "%s-keys" (include "llm-router.fullname" .)) -}}
{{- end -}}

{{- define "llm-router.image" -}}
{{- $root := index . 0 -}}
{{- printf "%s/%s:%s" $root.Values.image.repository (index . 1) ($root.Values.image.tag | default $root.Chart.AppVersion) -}}
{{- end -}}

{{- define "llm-router.routerSelector" -}}
app.kubernetes.io/name: llm-router
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "llm-router.bodylogSelector" -}}
app.kubernetes.io/name: bodylog
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "llm-router.common" -}}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "llm-router.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "llm-router.locked" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{- /* The main file: what the user set, and what follows from the rest of the values. */ -}}
{{- define "llm-router.mainFile" -}}
{{- $config := deepCopy .Values.router.config -}}
{{- range $key := list "routes" "drain_delay" "drain_timeout" -}}
{{- if or (hasKey $config $key) (hasKey ($config.server | default dict) $key) -}}
{{- fail (printf "router.config: the chart sets %s; use `routes` and `router.drain` of the values" $key) -}}
{{- end -}}
{{- end -}}
{{- $set := dict
  "server" (dict "drain_delay" (printf "%vs" .Values.router.drain.delaySeconds) "drain_timeout" (printf "%vs" .Values.router.drain.timeoutSeconds))
  "keys" (dict "file" "/etc/llm-router/keys/keys")
  "routes" "/etc/llm-router/routes" -}}
{{- if .Values.bodylog.enabled -}}
{{- $_ := set $set "bodylog" (dict
  "listener" (printf "%s-listener:9999" (include "llm-router.bodylog" .))
  "spool" (dict "dir" "/var/lib/llm-router/spool" "max_bytes" .Values.router.spool.maxBytes)) -}}
{{- end -}}
{{- mergeOverwrite $config $set | toYaml -}}
{{- end -}}

{{- define "llm-router.claim" -}}
accessModes: [ReadWriteOnce]
{{- with .storageClass }}
storageClassName: {{ . }}
{{- end }}
resources:
  requests: {storage: {{ .size }}}
{{- end -}}
