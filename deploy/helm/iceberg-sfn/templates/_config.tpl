{{/* The configuration of the listener, and the facts about it that other templates need. */}}

{{/*
A table of TOML, with the tables in it. JSON's strings, numbers and arrays are TOML too. Helm's `toToml` is no choice: it writes
whole numbers as floats.
*/}}
{{- define "iceberg-sfn.toml" -}}
{{- $path := .path -}}
{{- range $key, $value := .table }}
{{- if not (or (kindIs "map" $value) (kindIs "invalid" $value)) }}
{{ include "iceberg-sfn.tomlKey" $key }} = {{ toRawJson $value }}
{{- end }}
{{- end }}
{{- range $key, $value := .table }}
{{- if and (kindIs "map" $value) $value }}
{{- $below := append $path (include "iceberg-sfn.tomlKey" $key) }}
{{- $single := false }}
{{- range $value }}{{ if not (kindIs "map" .) }}{{ $single = true }}{{ end }}{{ end }}
{{- if $single }}

[{{ join "." $below }}]
{{- end }}
{{- include "iceberg-sfn.toml" (dict "path" $below "table" $value) }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "iceberg-sfn.tomlKey" -}}
{{- if regexMatch "^[A-Za-z0-9_-]+$" . }}{{ . }}{{ else }}{{ toJson . }}{{ end -}}
{{- end -}}

{{- define "iceberg-sfn.sfnToml" -}}
{{- include "iceberg-sfn.toml" (dict "path" list "table" .Values.config) | trim -}}
{{- end -}}

{{/* sqlite or postgresql. */}}
{{- define "iceberg-sfn.inbox" -}}
{{- if .Values.existingConfig.secretName -}}
{{- .Values.existingConfig.inbox -}}
{{- else -}}
{{- ternary "postgresql" "sqlite" (regexMatch "^postgres(ql)?://" (toString .Values.config.inbox.url)) -}}
{{- end -}}
{{- end -}}

{{- define "iceberg-sfn.port" -}}
{{- int (ternary .Values.existingConfig.port .Values.config.listener.port (not (empty .Values.existingConfig.secretName))) -}}
{{- end -}}

{{/* "true" if the listener has TLS, else nothing. */}}
{{- define "iceberg-sfn.tls" -}}
{{- if .Values.existingConfig.secretName -}}
{{- if .Values.existingConfig.tls }}true{{ end -}}
{{- else if .Values.config.listener.tls_certificate_file -}}
true
{{- end -}}
{{- end -}}

{{- define "iceberg-sfn.scheme" -}}
{{- if include "iceberg-sfn.tls" . }}https{{ else }}http{{ end -}}
{{- end -}}

{{/* The gateways with an address of their own: a JSON array of {port}. */}}
{{- define "iceberg-sfn.gatewayPorts" -}}
{{- $found := list -}}
{{- if not .Values.existingConfig.secretName -}}
{{- range $name, $gateway := .Values.config.gateway -}}
{{- if $gateway.host -}}{{- $found = append $found (int (default 8086 $gateway.port)) -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- toJson $found -}}
{{- end -}}

{{/*
The groups of equal pods: a JSON array of {name, roles, replicas, values}. Without `deployments` there is one, without a name, with
all roles.
*/}}
{{- define "iceberg-sfn.groups" -}}
{{- $groups := list -}}
{{- range $name, $values := .Values.deployments -}}
{{- $replicas := int (default 1 $values.replicaCount) -}}
{{- $groups = append $groups (dict "name" $name "roles" $values.roles "replicas" $replicas "values" $values) -}}
{{- end -}}
{{- if not $groups -}}
{{- $roles := list "receiver" "worker" "gateway" "facade" "admin" -}}
{{- $groups = list (dict "name" "" "roles" $roles "replicas" (int .Values.replicaCount) "values" dict) -}}
{{- end -}}
{{- toJson $groups -}}
{{- end -}}

{{/*
The Services: a JSON array of {name, role, ports, selector}. One for all, or one for each role that answers requests, because a pod
without a role answers 404 to its requests.
*/}}
{{- define "iceberg-sfn.services" -}}
{{- $root := . -}}
{{- $fullname := include "iceberg-sfn.fullname" . -}}
{{- $services := list -}}
{{- if .Values.deployments -}}
{{- range $role := list "receiver" "gateway" "facade" "admin" -}}
{{- $has := false -}}
{{- range $root.Values.deployments }}{{ if has $role .roles }}{{ $has = true }}{{ end }}{{ end -}}
{{- if $has -}}{{- $services = append $services (dict "name" (printf "%s-%s" $fullname $role) "role" $role) -}}{{- end -}}
{{- end -}}
{{- else -}}
{{- $services = list (dict "name" $fullname "role" "") -}}
{{- end -}}
{{- toJson $services -}}
{{- end -}}

{{/* The name of the Service that answers for a role. */}}
{{- define "iceberg-sfn.serviceOf" -}}
{{- $fullname := include "iceberg-sfn.fullname" .root -}}
{{- if .root.Values.deployments -}}{{ printf "%s-%s" $fullname .role }}{{- else -}}{{ $fullname }}{{- end -}}
{{- end -}}

{{/* The paths of a role: a JSON array. */}}
{{- define "iceberg-sfn.paths" -}}
{{- index (dict "receiver" (list "/v1") "gateway" (list "/catalog") "facade" (list "/iceberg") "admin" (list "/ui" "/admin")) . | toJson -}}
{{- end -}}
