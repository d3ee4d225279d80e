{{/* The pods of one group. Arguments: root, group. */}}
{{- define "iceberg-sfn.pod" -}}
{{- $root := .root -}}
{{- $group := .group -}}
{{- $values := $root.Values -}}
{{- $own := $group.values -}}
{{- $sqlite := eq (include "iceberg-sfn.inbox" $root) "sqlite" -}}
{{- $sleep := ternary 0 (int $values.preStopSleepSeconds) $sqlite -}}
metadata:
  annotations:
    {{- if not $values.existingConfig.secretName }}
    # A change of the configuration replaces the pods.
    checksum/config: {{ include "iceberg-sfn.sfnToml" $root | sha256sum }}
    {{- end }}
    kubectl.kubernetes.io/default-container: sfn
    {{- with merge (deepCopy (default dict $own.podAnnotations)) $values.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  labels:
    {{- include "iceberg-sfn.groupLabels" . | nindent 4 }}
    sfn-listener: "true"
    {{- range $group.roles }}
    sfn-role-{{ . }}: "true"
    {{- end }}
    {{- with $values.commonLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
    {{- with $values.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  {{- with $values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  serviceAccountName: {{ include "iceberg-sfn.serviceAccountName" $root }}
  automountServiceAccountToken: false
  # Variables of Services would look like settings.
  enableServiceLinks: false
  terminationGracePeriodSeconds: {{ add (int $values.terminationGracePeriodSeconds) $sleep }}
  {{- with $values.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  securityContext:
    {{- toYaml $values.podSecurityContext | nindent 4 }}
  {{- with $values.extraInitContainers }}
  initContainers:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  containers:
    - name: sfn
      image: {{ include "iceberg-sfn.image" $root | quote }}
      imagePullPolicy: {{ $values.image.pullPolicy }}
      args:
        - serve
        {{- if $group.name }}
        - --roles
        - {{ join "," $group.roles }}
        {{- end }}
      env:
        - name: SFN_CONFIG
          value: /etc/sfn/config/sfn.toml
        {{- with concat $values.extraEnv (default list $own.extraEnv) }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      ports:
        - name: http
          containerPort: {{ include "iceberg-sfn.port" $root }}
        {{- if has "gateway" $group.roles }}
        {{- range include "iceberg-sfn.gatewayPorts" $root | fromJsonArray }}
        - name: gateway-{{ . }}
          containerPort: {{ . }}
        {{- end }}
        {{- end }}
      startupProbe:
        {{- include "iceberg-sfn.probe" (dict "root" $root "path" "/livez" "probe" $values.startupProbe) | nindent 8 }}
      livenessProbe:
        {{- include "iceberg-sfn.probe" (dict "root" $root "path" "/livez" "probe" $values.livenessProbe) | nindent 8 }}
      readinessProbe:
        {{- include "iceberg-sfn.probe" (dict "root" $root "path" "/readyz" "probe" $values.readinessProbe) | nindent 8 }}
      {{- if $sleep }}
      lifecycle:
        preStop:
          sleep:
            seconds: {{ $sleep }}
      {{- end }}
      securityContext:
        {{- toYaml $values.securityContext | nindent 8 }}
      {{- with default $values.resources $own.resources }}
      resources:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      volumeMounts:
        - name: config
          mountPath: /etc/sfn/config
          readOnly: true
        {{- range $values.secrets }}
        - name: {{ include "iceberg-sfn.volumeName" (list "secret" .) }}
          mountPath: /etc/sfn/secrets/{{ . }}
          readOnly: true
        {{- end }}
        {{- range $values.configMaps }}
        - name: {{ include "iceberg-sfn.volumeName" (list "configmap" .) }}
          mountPath: /etc/sfn/configmaps/{{ . }}
          readOnly: true
        {{- end }}
        # The whole folder: SQLite keeps its log and its lock next to the database.
        - name: inbox
          mountPath: /var/lib/sfn
        - name: tmp
          mountPath: /tmp
        {{- with $values.extraVolumeMounts }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
  volumes:
    - name: config
      {{- if $values.existingConfig.secretName }}
      secret:
        secretName: {{ $values.existingConfig.secretName }}
        defaultMode: 0440
        items:
          - key: {{ $values.existingConfig.key }}
            path: sfn.toml
      {{- else }}
      configMap:
        name: {{ include "iceberg-sfn.fullname" $root }}
      {{- end }}
    {{- range $values.secrets }}
    - name: {{ include "iceberg-sfn.volumeName" (list "secret" .) }}
      secret:
        secretName: {{ . }}
        defaultMode: 0440
    {{- end }}
    {{- range $values.configMaps }}
    - name: {{ include "iceberg-sfn.volumeName" (list "configmap" .) }}
      configMap:
        name: {{ . }}
    {{- end }}
    - name: inbox
      {{- if and $sqlite $values.persistence.enabled }}
      persistentVolumeClaim:
        claimName: {{ include "iceberg-sfn.claimName" $root }}
      {{- else }}
      emptyDir: {}
      {{- end }}
    - name: tmp
      emptyDir: {}
    {{- with $values.extraVolumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with default $values.nodeSelector $own.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with default $values.tolerations $own.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with default $values.affinity $own.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- if gt (int $group.replicas) 1 }}
  {{- $selector := include "iceberg-sfn.groupLabels" . | fromYaml }}
  {{- /* By version, so that old pods do not count while they are replaced. */}}
  {{- $default := dict "maxSkew" 1 "topologyKey" "kubernetes.io/hostname" "whenUnsatisfiable" "ScheduleAnyway" "matchLabelKeys" (list "pod-template-hash") }}
  topologySpreadConstraints:
    {{- range default (list $default) $values.topologySpreadConstraints }}
    - {{- toYaml (merge (deepCopy .) (dict "labelSelector" (dict "matchLabels" $selector))) | nindent 6 }}
    {{- end }}
  {{- end }}
{{- end -}}

{{- define "iceberg-sfn.probe" -}}
httpGet:
  path: {{ .path }}
  port: http
  scheme: {{ include "iceberg-sfn.scheme" .root | upper }}
{{ toYaml .probe }}
{{- end -}}

{{/* The name of a volume is a DNS label of at most 63 characters; that of a Secret may have dots, and be longer. */}}
{{- define "iceberg-sfn.volumeName" -}}
{{- $name := printf "%s-%s" (index . 0) (index . 1) -}}
{{- if regexMatch "^[a-z0-9-]{1,63}$" $name -}}{{ $name }}{{- else -}}{{ printf "%s-%s" (index . 0) (sha256sum (index . 1) | trunc 16) }}{{- end -}}
{{- end -}}
