{{- /* Parts of the pods. A dictionary has the context (`root`) and the role's `component`; with SQLite, the component is empty. */}}

{{- define "ralph-bot.podMetadata" -}}
labels:
  {{- include "ralph-bot.selector" .root | nindent 2 }}
  {{- with .component }}
  app.kubernetes.io/component: {{ . }}
  {{- end }}
  {{- with .root.Values.podLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
annotations:
  # A changed configuration restarts the pod.
  checksum/config: {{ toJson .root.Values.config | sha256sum }}
  {{- with .root.Values.podAnnotations }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{- define "ralph-bot.podSettings" -}}
{{- $mode := .root.Values.sandbox.mode -}}
{{- if and (eq $mode "runtimeClass") (not .root.Values.sandbox.runtimeClassName) }}
{{- fail "sandbox.runtimeClassName is empty: the mode runtimeClass needs the name of a runtime class with gVisor or Kata" }}
{{- end -}}
serviceAccountName: {{ include "ralph-bot.fullname" .root }}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- if eq $mode "userNamespace" }}
# Users of the pod are nobody on the node; `procMount: Unmasked` is accepted only with it.
hostUsers: false
{{- end }}
{{- if eq $mode "runtimeClass" }}
runtimeClassName: {{ .root.Values.sandbox.runtimeClassName }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 1000
  runAsGroup: 1000
  fsGroup: 1000
  fsGroupChangePolicy: OnRootMismatch
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
{{- end -}}

{{- define "ralph-bot.container" -}}
{{- $mode := .root.Values.sandbox.mode -}}
image: {{ include "ralph-bot.image" .root }}
imagePullPolicy: {{ .root.Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
  {{- if eq $mode "userNamespace" }}
  procMount: Unmasked
  seccompProfile:
    {{- if .root.Values.sandbox.seccompProfile }}
    type: Localhost
    localhostProfile: {{ .root.Values.sandbox.seccompProfile }}
    {{- else }}
    type: Unconfined
    {{- end }}
  appArmorProfile:
    {{- if .root.Values.sandbox.appArmorProfile }}
    type: Localhost
    localhostProfile: {{ .root.Values.sandbox.appArmorProfile }}
    {{- else }}
    type: Unconfined
    {{- end }}
  {{- else }}
  seccompProfile:
    type: RuntimeDefault
  {{- end }}
{{- with .root.Values.secrets.existingSecret }}
envFrom:
  - secretRef:
      name: {{ . }}
{{- end }}
volumeMounts:
  - name: data
    mountPath: /data
  - name: tmp
    mountPath: /tmp
  - name: home
    mountPath: /home/ralph-bot
  - name: config
    mountPath: /etc/ralph-bot/ralph-control.yaml
    subPath: ralph-control.yaml
    readOnly: true
  {{- if .root.Values.secrets.existingFilesSecret }}
  - name: secrets
    mountPath: /etc/ralph-bot/secrets
    readOnly: true
  {{- end }}
{{- end -}}

{{- define "ralph-bot.env" -}}
{{- if eq .root.Values.sandbox.mode "runtimeClass" }}
# The pod is the sandbox: nothing but the runtime keeps agents from the service's own files.
- name: RALPH_SANDBOX__REQUIRED
  value: none
{{- end }}
- name: RALPH_LOG_FORMAT
  value: json
{{- with .root.Values.database.url }}
- name: RALPH_DATABASE
  value: {{ . | quote }}
{{- end }}
{{- if and .root.Values.database.url .root.Values.database.passwordSecret }}
- name: RALPH_DATABASE_PASSWORD_ENV
  value: RALPH_PG_PASSWORD
- name: RALPH_PG_PASSWORD
  valueFrom:
    secretKeyRef:
      name: {{ .root.Values.database.passwordSecret }}
      key: {{ .root.Values.database.passwordKey }}
{{- end }}
{{- if eq .component "runner" }}
# The list of hosts has the names of pods.
- name: RALPH_RUNNER__NAME
  valueFrom:
    fieldRef:
      fieldPath: metadata.name
- name: RALPH_RUNNER__SLOTS
  value: {{ .root.Values.runners.slots | quote }}
- name: RALPH_RUNNER__LABELS
  value: {{ toJson .root.Values.runners.labels | quote }}
{{- end }}
{{- with .root.Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "ralph-bot.probes" -}}
startupProbe:
  httpGet: { path: /healthz, port: {{ . }} }
  periodSeconds: 5
  # A large database takes a while to bring up to date.
  failureThreshold: 60
livenessProbe:
  httpGet: { path: /healthz, port: {{ . }} }
  periodSeconds: 20
  timeoutSeconds: 5
readinessProbe:
  httpGet: { path: /readyz, port: {{ . }} }
  periodSeconds: 10
  timeoutSeconds: 5
{{- end -}}

{{- define "ralph-bot.volumes" -}}
- name: config
  configMap:
    name: {{ include "ralph-bot.fullname" .root }}
- name: tmp
  emptyDir:
    sizeLimit: {{ .root.Values.tmpSize }}
- name: home
  emptyDir:
    sizeLimit: 64Mi
{{- with .root.Values.secrets.existingFilesSecret }}
- name: secrets
  secret:
    secretName: {{ . }}
    defaultMode: 0440
{{- end }}
{{- with .dataSize }}
# The database and the forges have everything that another pod needs.
- name: data
  emptyDir:
    sizeLimit: {{ . }}
{{- end }}
{{- end -}}

{{- /* The stop of a runner: it first finishes its iterations, and SIGTERM then gives back what is left. */}}
{{- define "ralph-bot.drain" -}}
lifecycle:
  preStop:
    exec:
      command: [timeout, {{ .Values.runners.drainSeconds | quote }}, ralph-bot, drain]
{{- end -}}
