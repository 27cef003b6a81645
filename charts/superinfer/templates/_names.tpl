{{/* Names are fixed, not made from the release: there is one SuperInfer in a cluster, and the operator, the
     ingress and the documentation all name the same Secrets and Services. */}}
{{- define "superinfer.labels" -}}
app.kubernetes.io/name: superinfer
app.kubernetes.io/component: {{ .component }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end }}

{{- define "superinfer.selector" -}}
app.kubernetes.io/name: superinfer
app.kubernetes.io/component: {{ .component }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
{{- end }}

{{- define "superinfer.image" -}}
{{ printf "%s/%s:%s" .root.Values.image.registry .name .root.Values.image.tag }}
{{- end }}

{{- define "superinfer.pullSecrets" -}}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
{{- range . }}
  - name: {{ . }}
{{- end }}
{{- end }}
{{- end }}

{{/* Pod security level "restricted". */}}
{{- define "superinfer.podSecurity" -}}
securityContext:
  runAsNonRoot: true
  runAsUser: 1000
  runAsGroup: 1000
  fsGroup: 1000
  seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "superinfer.containerSecurity" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end }}

{{- define "superinfer.scheduling" -}}
{{- with .nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- end }}

{{/* Replicas on different nodes and in different zones, where there are some. */}}
{{- define "superinfer.spread" -}}
{{- $selector := include "superinfer.selector" . }}
{{- range list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
- maxSkew: 1
  topologyKey: {{ . }}
  whenUnsatisfiable: ScheduleAnyway
  labelSelector:
    matchLabels: {{- $selector | nindent 6 }}
{{- end }}
{{- end }}

{{- define "superinfer.podIdentity" -}}
- name: POD_NAME
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
- name: POD_NAMESPACE
  valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
- name: POD_UID
  valueFrom: {fieldRef: {fieldPath: metadata.uid}}
# There is no such user in the images, and some libraries ask for its name.
- name: USER
  value: superinfer
- name: HOME
  value: /tmp
- name: TMPDIR
  value: /tmp
{{- end }}
