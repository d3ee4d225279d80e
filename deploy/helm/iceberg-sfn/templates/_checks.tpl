{{/* Combinations of values that cannot work. All of them are reported at once. */}}

{{- define "iceberg-sfn.check" -}}
{{- $problems := regexSplit "\n" (include "iceberg-sfn.problems" . | trim) -1 -}}
{{- $found := list -}}
{{- range $problems }}{{ if trim . }}{{ $found = append $found (printf "- %s" (trim .)) }}{{ end }}{{ end -}}
{{- if $found -}}
{{- fail (printf "these values cannot work:\n%s" (join "\n" $found)) -}}
{{- end -}}
{{- end -}}

{{- define "iceberg-sfn.problems" -}}
{{- $config := .Values.config -}}
{{- if .Values.existingConfig.secretName }}
{{- if or $config.catalogs $config.stores $config.senders }}
config and existingConfig.secretName are both set. Remove one of them.
{{- end }}
{{- else }}
{{- if not $config.catalogs }}
config.catalogs is empty, so there is no configuration. Set config.catalogs.NAME.uri, or existingConfig.secretName.
{{- else if not $config.senders }}
config.senders is empty. The listener then accepts connections on loopback only, where no pod reaches it. Set config.senders.NAME.secrets_file.
{{- end }}
{{- $lacking := list }}
{{- range $name, $catalog := $config.catalogs }}
{{- if not $catalog.vended_credentials }}{{ $lacking = append $lacking $name }}{{ end }}
{{- end }}
{{- if and $lacking (not $config.stores) }}
config.stores is empty, so no table of {{ join ", " $lacking }} can be published. Set config.stores.NAME.prefix, or vended_credentials of each catalog.
{{- end }}
{{- include "iceberg-sfn.configProblems" . }}
{{- end }}
{{- range $where, $labels := dict "commonLabels" .Values.commonLabels "podLabels" .Values.podLabels }}
{{- range list "name" "instance" "component" }}
{{- if hasKey $labels (printf "app.kubernetes.io/%s" .) }}
{{ $where }} has app.kubernetes.io/{{ . }}, which the chart sets. Remove it.
{{- end }}
{{- end }}
{{- end }}
{{- include "iceberg-sfn.replicaProblems" . }}
{{- include "iceberg-sfn.budgetProblems" . }}
{{- include "iceberg-sfn.networkProblems" . }}
{{- range .Values.extraEnv }}{{ include "iceberg-sfn.envProblem" (dict "where" "extraEnv" "variable" .) }}{{ end }}
{{- range $name, $group := .Values.deployments }}
{{- range $group.extraEnv }}{{ include "iceberg-sfn.envProblem" (dict "where" (printf "deployments.%s.extraEnv" $name) "variable" .) }}{{ end }}
{{- end }}
{{- end -}}

{{- define "iceberg-sfn.replicaProblems" -}}
{{- if eq (include "iceberg-sfn.inbox" .) "sqlite" }}
{{- if gt (int .Values.replicaCount) 1 }}
replicaCount is {{ int .Values.replicaCount }}, but the inbox is SQLite, which one process can use. Set replicaCount to 1, or config.inbox.url to postgresql://….
{{- end }}
{{- if .Values.deployments }}
deployments is set, but the inbox is SQLite, which one process can use. Remove deployments, or set config.inbox.url to postgresql://….
{{- end }}
{{- else if .Values.deployments }}
{{- range $name, $_ := .Values.deployments }}
{{- if not (regexMatch "^[a-z]([a-z0-9-]{0,18}[a-z0-9])?$" $name) }}
deployments.{{ $name }} has a wrong name. Use lower-case letters, digits and -, at most 20 characters.
{{- end }}
{{- end }}
{{- $roles := list }}
{{- range .Values.deployments }}{{ $roles = concat $roles .roles }}{{ end }}
{{- if not (has "worker" $roles) }}
no entry of deployments has the role worker, so nothing would be published.
{{- end }}
{{- if gt (int .Values.replicaCount) 1 }}
replicaCount and deployments are both set. Set deployments.NAME.replicaCount instead.
{{- end }}
{{- end }}
{{- end -}}

{{- define "iceberg-sfn.configProblems" -}}
{{- $listener := .Values.config.listener -}}
{{- $inbox := .Values.config.inbox -}}
{{- if regexMatch "^(127\\.|localhost$|\\[?::1\\]?$)" (toString $listener.host) }}
config.listener.host is {{ $listener.host }}, where no other pod and no probe reaches the listener. Set it to 0.0.0.0, or to "::".
{{- end }}
{{- if not (int $listener.port) }}
config.listener.port is 0. A Service needs a port that is known.
{{- end }}
{{- if ne (empty $listener.tls_certificate_file) (empty $listener.tls_key_file) }}
config.listener has only one of tls_certificate_file and tls_key_file. Set both.
{{- end }}
{{- if and (hasPrefix "sqlite:" $inbox.url) (not (hasPrefix "sqlite:////var/lib/sfn/" $inbox.url)) }}
config.inbox.url names a file outside /var/lib/sfn. Only this folder is on the volume: sqlite:////var/lib/sfn/inbox.db.
{{- end }}
{{- $drain := toString (ternary "30s" $listener.drain (kindIs "invalid" $listener.drain)) }}
{{- $needed := add 40 (include "iceberg-sfn.seconds" $drain) }}
{{- if lt (int .Values.terminationGracePeriodSeconds) (int $needed) }}
terminationGracePeriodSeconds is {{ int .Values.terminationGracePeriodSeconds }}. The listener needs config.listener.drain ({{ $drain }}) and 40 s more to stop. Set it to {{ $needed }}.
{{- end }}
{{- $ports := list (int $listener.port) }}
{{- range $name, $gateway := .Values.config.gateway }}
{{- if $gateway.host }}
{{- if regexMatch "^(127\\.|localhost$|\\[?::1\\]?$)" $gateway.host }}
config.gateway.{{ $name }}.host is {{ $gateway.host }}, where no other pod reaches the gateway. Set it to 0.0.0.0, or remove it.
{{- end }}
{{- if has (int (default 8086 $gateway.port)) $ports }}
config.gateway.{{ $name }}.port is used twice. Give each gateway with a host a port of its own.
{{- end }}
{{- $ports = append $ports (int (default 8086 $gateway.port)) }}
{{- end }}
{{- end }}
{{- include "iceberg-sfn.secretProblems" . }}
{{- include "iceberg-sfn.fileProblems" (dict "root" . "path" "config" "table" .Values.config) }}
{{- range regexFindAll "[?&]ssl(rootcert|cert|key|crl)=[^&]+" (toString $inbox.url) -1 }}
{{- $parts := splitn "=" 2 . }}
{{- $file := $parts._1 | replace "%2F" "/" | replace "%2f" "/" }}
{{- if ne $file "system" }}
{{- include "iceberg-sfn.fileProblem" (dict "root" $ "where" (printf "%s in config.inbox.url" (trimAll "?&" $parts._0)) "file" $file) }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Secrets in `config` would be in a ConfigMap, which many people can read. */}}
{{- define "iceberg-sfn.secretProblems" -}}
{{- $config := .Values.config -}}
{{- range list (list "facade" "token") (list "admin" "token") (list "telemetry" "metrics_token") }}
{{- if dig (index . 0) (index . 1) "" $config }}
config.{{ index . 0 }}.{{ index . 1 }} is a secret. Put it into a Secret, name that in secrets, and set config.{{ index . 0 }}.{{ index . 1 }}_file.
{{- end }}
{{- end }}
{{- if regexMatch "^[a-z]+://[^/@]*:[^/@]*@" (toString $config.inbox.url) }}
config.inbox.url has a password. Put it into a Secret, name that in secrets, and set config.inbox.password_file.
{{- end }}
{{- range $name, $sender := $config.senders }}
{{- if $sender.secrets }}
config.senders.{{ $name }}.secrets has secrets. Put them into a Secret, name that in secrets, and set config.senders.{{ $name }}.secrets_file.
{{- end }}
{{- end }}
{{- range $name, $catalog := $config.catalogs }}
{{- range list "token" "credential" }}
{{- if get $catalog . }}
config.catalogs.{{ $name }}.{{ . }} is a secret. Put it into a Secret, name that in secrets, and set config.catalogs.{{ $name }}.{{ . }}_file.
{{- end }}
{{- end }}
{{- range list "uri" "oauth2_uri" }}
{{- if regexMatch "^[a-z]+://[^/@]*@" (toString (get $catalog .)) }}
config.catalogs.{{ $name }}.{{ . }} has a user or a password. Use token_file or credential_file.
{{- end }}
{{- end }}
{{- range $table := list "headers" "properties" }}
{{- range $key, $value := default dict (get $catalog $table) }}
{{- if or (regexMatch "(?i)authorization|cookie|token|secret|password|credential" $key) (regexMatch "://[^/@]*:[^/@]*@" (toString $value)) }}
config.catalogs.{{ $name }}.{{ $table }} has a secret under {{ $key }}. Pass the whole table from a Secret: extraEnv with valueFrom.secretKeyRef, named {{ include "iceberg-sfn.variable" (list "catalogs" $name $table) }}.
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- range $name, $store := $config.stores }}
{{- range list "secret_access_key" "session_token" "account_key" "sas_token" "client_secret" }}
{{- if get $store . }}
config.stores.{{ $name }}.{{ . }} is a secret without a file. Pass it from a Secret: extraEnv with valueFrom.secretKeyRef, named {{ include "iceberg-sfn.variable" (list "stores" $name .) }}. Better: an identity of the pod (serviceAccount.annotations).
{{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{/* The environment variable of a setting. */}}
{{- define "iceberg-sfn.variable" -}}
SFN_{{ join "__" . | upper | replace "-" "_" | replace "." "_" }}
{{- end -}}

{{/* A variable with a secret must refer to a Secret. */}}
{{- define "iceberg-sfn.envProblem" -}}
{{- $secret := "^SFN_.*__(METRICS_TOKEN|TOKEN|CREDENTIAL|SECRETS(__.*)?|SECRET_ACCESS_KEY|SESSION_TOKEN|ACCOUNT_KEY|SAS_TOKEN|CLIENT_SECRET|HEADERS|PROPERTIES)$" -}}
{{- $provider := "^(AWS_SECRET_ACCESS_KEY|AWS_SESSION_TOKEN|AZURE_CLIENT_SECRET|AZURE_CLIENT_CERTIFICATE_PASSWORD)$" -}}
{{- if and .variable.value (or (regexMatch $secret .variable.name) (regexMatch $provider .variable.name)) }}
{{ .where }} has the value of {{ .variable.name }}, which is a secret. Put it into a Secret, and use valueFrom.secretKeyRef.
{{- end }}
{{- end -}}

{{/* The whole seconds of a duration, rounded up. The service refuses what is none. */}}
{{- define "iceberg-sfn.seconds" -}}
{{- $units := dict "ms" 0.001 "s" 1.0 "m" 60.0 "h" 3600.0 "d" 86400.0 -}}
{{- if regexMatch "^[0-9]{1,9}(\\.[0-9]{1,9})? ?(ms|s|m|h|d)$" . -}}
{{- mulf (regexFind "^[0-9.]+" . | float64) (get $units (regexFind "[a-z]+$" .)) | ceil | int64 -}}
{{- else -}}0{{- end -}}
{{- end -}}

{{/* Paths below /etc/sfn must be in a Secret or ConfigMap that is mounted. */}}
{{- define "iceberg-sfn.fileProblems" -}}
{{- $root := .root -}}
{{- $path := .path -}}
{{- range $key, $value := .table }}
{{- if kindIs "map" $value }}
{{- include "iceberg-sfn.fileProblems" (dict "root" $root "path" (printf "%s.%s" $path $key) "table" $value) }}
{{- else if and (hasSuffix "_file" $key) (kindIs "string" $value) }}
{{- include "iceberg-sfn.fileProblem" (dict "root" $root "where" (printf "%s.%s" $path $key) "file" $value) }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "iceberg-sfn.fileProblem" -}}
{{- if not (hasPrefix "/" .file) }}
{{ .where }} is {{ .file }}. A path in a container begins with /.
{{- else if hasPrefix "/etc/sfn/" .file }}
{{- $parts := splitList "/" .file }}
{{- $kind := index $parts 3 }}
{{- if not (and (eq (len $parts) 6) (has $kind (list "secrets" "configmaps"))) }}
{{ .where }} is {{ .file }}. Files are at /etc/sfn/secrets/NAME/KEY and /etc/sfn/configmaps/NAME/KEY.
{{- else if not (has (index $parts 4) (ternary .root.Values.secrets .root.Values.configMaps (eq $kind "secrets"))) }}
{{ .where }} is in {{ index $parts 4 }}, which is not mounted. Add {{ index $parts 4 }} to {{ ternary "secrets" "configMaps" (eq $kind "secrets") }}. A list in a later values file replaces the whole list.
{{- end }}
{{- end }}
{{- end -}}

{{- define "iceberg-sfn.budgetProblems" -}}
{{- $budget := .Values.podDisruptionBudget -}}
{{- if $budget.enabled }}
{{- $most := ternary "" (toString $budget.maxUnavailable) (kindIs "invalid" $budget.maxUnavailable) -}}
{{- $least := ternary "" (toString $budget.minAvailable) (kindIs "invalid" $budget.minAvailable) -}}
{{- if eq (empty $most) (empty $least) }}
podDisruptionBudget needs exactly one of maxUnavailable and minAvailable. Set the other one to "".
{{- end }}
{{- if has $most (list "0" "0%") }}
podDisruptionBudget.maxUnavailable is {{ $most }}, which blocks every drain of a node.
{{- end }}
{{- range include "iceberg-sfn.groups" . | fromJsonArray }}
{{- if and (gt (int .replicas) 1) (or (eq $least "100%") (and (regexMatch "^[0-9]+$" $least) (ge (int $least) (int .replicas)))) }}
podDisruptionBudget.minAvailable is {{ $least }}, but there are {{ .replicas }} pods{{ with .name }} of {{ . }}{{ end }}. This blocks every drain of a node.
{{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "iceberg-sfn.networkProblems" -}}
{{- $config := .Values.config -}}
{{- $known := empty .Values.existingConfig.secretName -}}
{{- if and .Values.ingress.enabled (not .Values.ingress.hosts) }}
ingress.hosts is empty. Name a host.
{{- end }}
{{- if and .Values.httpRoute.enabled (not .Values.httpRoute.parentRefs) }}
httpRoute.parentRefs is empty. Name a Gateway.
{{- end }}
{{- $on := dict "ingress" .Values.ingress "httpRoute" .Values.httpRoute }}
{{- $deployments := .Values.deployments }}
{{- range $key, $value := $on }}
{{- if $value.enabled }}
{{- range $role := $value.expose }}
{{- $has := empty $deployments }}
{{- range $deployments }}{{ if has $role .roles }}{{ $has = true }}{{ end }}{{ end }}
{{- if not $has }}
{{ $key }}.expose has {{ $role }}, but no entry of deployments has this role.
{{- end }}
{{- if and $known (eq $role "gateway") (not $config.gateway) }}
{{ $key }}.expose has gateway, but config.gateway is empty.
{{- end }}
{{- if and $known (eq $role "facade") (not (dig "facade" "token_file" "" $config)) (not (dig "facade" "open" false $config)) }}
{{ $key }}.expose has facade, but config.facade.token_file is not set.
{{- end }}
{{- if and $known (eq $role "admin") (not (dig "admin" "token_file" "" $config)) }}
{{ $key }}.expose has admin, but config.admin.token_file is not set.
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- $alerts := list }}
{{- range $path, $_ := .Files.Glob "files/prometheus/*.yml" }}
{{- range ($.Files.Get $path | fromYaml).groups }}{{ range .rules }}{{ $alerts = append $alerts (default "" .alert) }}{{ end }}{{ end }}
{{- end }}
{{- range .Values.prometheusRule.disabled }}
{{- if not (has . $alerts) }}
prometheusRule.disabled has {{ . }}, which is no alert of this chart.
{{- end }}
{{- end }}
{{- if .Values.serviceMonitor.enabled }}
{{- if and (include "iceberg-sfn.tls" .) (not .Values.serviceMonitor.tlsConfig) }}
serviceMonitor.tlsConfig is empty, but the listener has TLS. Set ca and serverName, or insecureSkipVerify: true.
{{- end }}
{{- $file := dig "telemetry" "metrics_token_file" "" $config }}
{{- $named := and .Values.serviceMonitor.bearerTokenSecret.name .Values.serviceMonitor.bearerTokenSecret.key }}
{{- if and $known $file (not $named) (not (regexMatch "^/etc/sfn/secrets/[^/]+/[^/]+$" $file)) }}
serviceMonitor.bearerTokenSecret is not set, and config.telemetry.metrics_token_file is in no Secret. Name the Secret with the token.
{{- end }}
{{- end }}
{{- end -}}
