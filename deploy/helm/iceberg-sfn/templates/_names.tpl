{{/* Names and labels of all objects. */}}

{{- define "iceberg-sfn.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 42 | trimSuffix "-" -}}
{{- end -}}

{{/* At most 42 characters: the longest suffix has 21, and a name has at most 63. */}}
{{- define "iceberg-sfn.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) | trunc 42 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* Labels that select the pods of the release. They never change, because selectors cannot change. */}}
{{- define "iceberg-sfn.selectorLabels" -}}
app.kubernetes.io/name: {{ include "iceberg-sfn.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* Labels that select the pods of one group. */}}
{{- define "iceberg-sfn.groupLabels" -}}
{{ include "iceberg-sfn.selectorLabels" .root }}
app.kubernetes.io/component: {{ default "listener" .group.name }}
{{- end -}}

{{- define "iceberg-sfn.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{ include "iceberg-sfn.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* The name of the objects of one group: the fullname, and the group's name if there is one. */}}
{{- define "iceberg-sfn.groupName" -}}
{{- $fullname := include "iceberg-sfn.fullname" .root -}}
{{- if .group.name -}}{{ printf "%s-%s" $fullname .group.name }}{{- else -}}{{ $fullname }}{{- end -}}
{{- end -}}

{{- define "iceberg-sfn.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "iceberg-sfn.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "iceberg-sfn.claimName" -}}
{{- default (printf "%s-inbox" (include "iceberg-sfn.fullname" .)) .Values.persistence.existingClaim -}}
{{- end -}}

{{- define "iceberg-sfn.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}
{{- end -}}
