{{- define "sluice.selectorLabels" -}}
app.kubernetes.io/name: sluice
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "sluice.labels" -}}
{{ include "sluice.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end }}

{{- /* What a combination of values would break in operation is refused here. */ -}}
{{- define "sluice.check" -}}
{{- if not .Values.upstream.bootstrap }}{{ fail "upstream.bootstrap is empty: name the addresses of brokers" }}{{ end }}
{{- if .Values.listener.sni }}
{{- if not (hasSuffix "SSL" .Values.listener.protocol) }}{{ fail "listener.sni needs listener.protocol SSL or SASL_SSL" }}{{ end }}
{{- else }}
{{- if not .Values.listener.advertisedHost }}{{ fail "listener.advertisedHost is empty: name the host by which clients reach the Service" }}{{ end }}
{{- if not .Values.listener.brokers }}{{ fail "listener.brokers is empty: list the node ids of the brokers, or set listener.sni" }}{{ end }}
{{- range .Values.listener.brokers }}
{{- if gt (add $.Values.listener.firstBrokerPort . | int) 65535 }}{{ fail (printf "broker %v would have a port above 65535: lower listener.firstBrokerPort, or set listener.sni" .) }}{{ end }}
{{- end }}
{{- end }}
{{- if and (hasSuffix "SSL" .Values.listener.protocol) (not .Values.listener.tlsSecret) }}{{ fail (printf "listener.protocol %s needs listener.tlsSecret" .Values.listener.protocol) }}{{ end }}
{{- if and (hasPrefix "SASL" .Values.upstream.protocol) (not .Values.upstream.credentials) }}{{ fail "upstream.protocol with SASL needs upstream.credentials: the fleet has a topic at the brokers" }}{{ end }}
{{- if not (has .Values.quotas.store (list "file" "topic")) }}{{ fail (printf "quotas.store is file or topic, not %s" .Values.quotas.store) }}{{ end }}
{{- if and (eq .Values.quotas.store "file") (ne .Values.quotaAdmin.authority "nobody") }}{{ fail "quotaAdmin.authority other than nobody needs quotas.store topic: a pod cannot change a ConfigMap, and a file of its own would differ from the others" }}{{ end }}
{{- end }}

{{- define "sluice.config" -}}
{{- include "sluice.check" . -}}
workers = {{ .Values.workers | toJson }}

[upstream]
bootstrap = {{ .Values.upstream.bootstrap | toJson }}
{{- with .Values.upstream.protocol }}
protocol = {{ . | quote }}
{{- end }}
{{- if .Values.upstream.caSecret }}

[upstream.tls]
ca = "/etc/sluice-upstream-ca/ca.crt"
{{- end }}
{{- with .Values.upstream.credentials }}

[upstream.credentials]
mechanism = {{ .mechanism | quote }}
username = {{ .username | quote }}
password_file = "/etc/sluice-upstream/password"
{{- end }}

[[listener]]
address = "0.0.0.0:{{ .Values.listener.port }}"
protocol = {{ .Values.listener.protocol | quote }}
{{- if not .Values.listener.sni }}
advertised_host = {{ .Values.listener.advertisedHost | quote }}
first_broker_port = {{ .Values.listener.firstBrokerPort }}
{{- end }}
{{- with .Values.listener.extra }}
{{ . | trim }}
{{- end }}
{{- if .Values.listener.tlsSecret }}

[listener.tls]
certificate = "/etc/sluice-listener/tls.crt"
key = "/etc/sluice-listener/tls.key"
{{- end }}
{{- with .Values.listener.sni }}

[listener.sni]
bootstrap = {{ .bootstrap | quote }}
broker = {{ .broker | quote }}
{{- end }}

[quotas]
{{- if eq .Values.quotas.store "topic" }}
store = "topic"
topic = {{ .Values.quotas.topic | quote }}
create = true
{{- else }}
path = "/etc/sluice-quotas/quotas.toml"
{{- end }}

[quota_admin]
authority = {{ .Values.quotaAdmin.authority | quote }}
{{- with .Values.quotaAdmin.principals }}
principals = {{ . | toJson }}
{{- end }}

[fleet]
name = {{ .Values.fleet.name | quote }}
secret_file = "/etc/sluice-fleet/fleet.secret"

[admin]
address = "0.0.0.0:{{ .Values.admin.port }}"
tokens = [{ name = "prometheus", file = "/etc/sluice-admin-token/token" }]

[admin.tls]
certificate = "/etc/sluice-admin/tls.crt"
key = "/etc/sluice-admin/tls.key"

[limits]
drain_ms = {{ mul .Values.drainSeconds 1000 }}
{{- if .Values.metering.url }}

[metering]
dir = "/var/lib/sluice/metering"
max_age = {{ .Values.metering.maxAge | quote }}

[metering.upload]
url = {{ .Values.metering.url | quote }}
local_bytes_max = {{ .Values.metering.localBytesMax | quote }}
{{- end }}
{{- with .Values.extraConfig }}

{{ . | trim }}
{{- end }}
{{- end }}
