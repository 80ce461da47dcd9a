{{- /* The name of all objects. Those of the whole cluster have .NAMESPACE behind it: a release in another namespace may have
the same name. */}}
{{- define "slicefeed.fullname" -}}
{{- .Values.fullnameOverride | default .Release.Name -}}
{{- end }}

{{- /* The service account of the Pods, which the roles and the policies are about. */}}
{{- define "slicefeed.account" -}}
{{- .Values.serviceAccount.name | default (include "slicefeed.fullname" .) -}}
{{- end }}

{{- define "slicefeed.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "slicefeed.ownLabels" -}}
{{ include "slicefeed.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "slicefeed.labels" -}}
{{ include "slicefeed.ownLabels" . }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* Labels of the Pods. A selector never has more than the first two. */}}
{{- define "slicefeed.podLabels" -}}
{{ include "slicefeed.ownLabels" . }}
{{- with merge (dict) (.Values.podLabels | default dict) (.Values.commonLabels | default dict) }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* Name, namespace and labels, which all objects of the release's namespace have. */}}
{{- define "slicefeed.metadata" -}}
name: {{ include "slicefeed.fullname" . }}
namespace: {{ toYaml .Release.Namespace }}
labels:
  {{- include "slicefeed.labels" . | nindent 2 }}
{{- end }}

{{- define "slicefeed.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ with .Values.image.digest }}@{{ . }}{{ end }}
{{- end }}

{{- /* A map without the fields that are null: null takes a default away. Numbers are written in full: Helm reads them as
floats, and would write a user ID as 1.00065e+09. */}}
{{- define "slicefeed.withoutNulls" -}}
{{- $set := dict -}}
{{- range $name, $value := . -}}
{{- if not (kindIs "invalid" $value) }}{{ $_ := set $set $name (kindIs "float64" $value | ternary (int64 $value) $value) }}{{ end -}}
{{- end -}}
{{- toYaml $set -}}
{{- end }}

{{- /* What Pods of the release have in common, the one of the test included. */}}
{{- define "slicefeed.podSpec" -}}
serviceAccountName: {{ include "slicefeed.account" . }}
# Settings are environment variables: keep those that Kubernetes adds for Services out.
enableServiceLinks: false
securityContext:
  {{- include "slicefeed.withoutNulls" .Values.podSecurityContext | nindent 2 }}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- /* The same of their container. */}}
{{- define "slicefeed.containerSpec" -}}
image: {{ include "slicefeed.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
# The last lines of the log, such as a missing Secret, are shown in the Pod's status.
terminationMessagePath: /dev/termination-log
terminationMessagePolicy: FallbackToLogsOnError
{{- with .Values.resources }}
resources:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  {{- include "slicefeed.withoutNulls" .Values.securityContext | nindent 2 }}
{{- end }}

{{- /* Problems that both charts may have, as a JSON list. It takes the chart, the variables that it sets, and
the names of the other component's credentials. */}}
{{- define "slicefeed.problems" -}}
{{- $v := .root.Values -}}
{{- $wrong := list -}}
{{- range $key, $labels := dict "commonLabels" $v.commonLabels "podLabels" $v.podLabels -}}
{{- range $name := list "name" "instance" "version" "managed-by" -}}
{{- $label := printf "app.kubernetes.io/%s" $name -}}
{{- if hasKey (default dict $labels) $label -}}
{{- $wrong = append $wrong (printf "%s has %s, which the chart sets itself: remove it" $key $label) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and (not $v.serviceAccount.create) (not $v.serviceAccount.name) -}}
{{- $wrong = append $wrong "serviceAccount.name is empty: want the name of an account that exists, since serviceAccount.create is false" -}}
{{- end -}}
{{- if and $v.image.digest (contains "@" ($v.image.tag | default "")) -}}
{{- $wrong = append $wrong "image.digest is set, and image.tag has a digest already: remove one of them" -}}
{{- end -}}
{{- if and $v.networkPolicy.extraEgress (not $v.networkPolicy.apiServerCIDRs) -}}
{{- $wrong = append $wrong "networkPolicy.extraEgress is set: it has no effect unless networkPolicy.apiServerCIDRs limits outgoing traffic" -}}
{{- end -}}
{{- $taken := dict -}}
{{- range .foreign }}{{ $_ := set $taken . "it is a credential of the other component, and the two must never meet" }}{{ end -}}
{{- range .env }}{{ $_ := set $taken .name "the chart sets it from other values; change those" }}{{ end -}}
{{- range $v.extraEnv -}}
{{- $name := .name -}}
{{- with index $taken $name }}{{ $wrong = append $wrong (printf "extraEnv has %s: %s" $name .) }}{{ end -}}
{{- $_ := set $taken $name "it is in the list twice" -}}
{{- end -}}
{{- toJson $wrong -}}
{{- end }}

{{- /* 90% of the container's memory limit, in Go's notation: the rest is for memory that Go does not count. */}}
{{- define "slicefeed.gomemlimit" -}}
{{- with dig "limits" "memory" "" .Values.resources -}}
{{- $mi := trimSuffix "Mi" . | trimSuffix "Gi" | int -}}
{{- if hasSuffix "Gi" . }}{{ $mi = mul $mi 1024 }}{{ end -}}
{{- div (mul $mi 9) 10 }}MiB
{{- end -}}
{{- end }}

{{- /* The namespaces whose Services may be targets, as a JSON list; ["*"]: all of them. */}}
{{- define "writer.namespaces" -}}
{{- $all := list -}}
{{- with .Values.settings.WATCH_NAMESPACES }}{{ $all = splitList "," . }}{{ else }}{{ $all = list .Release.Namespace }}{{ end -}}
{{- if not (has "*" $all) }}{{ $all = append $all .Values.settings.TARGET_NAMESPACE | compact | uniq }}{{ end -}}
{{- toJson $all -}}
{{- end }}

{{- /* "yes" if the writer watches all namespaces. */}}
{{- define "writer.everywhere" -}}
{{- if has "*" (include "writer.namespaces" . | fromJsonArray) }}yes{{ end -}}
{{- end }}

{{- /* The CIDRs allowed for any source, as a JSON list: for the network policy and the admission policy. */}}
{{- define "writer.cidrs" -}}
{{- $all := splitList "," (.Values.settings.SECURED_SUBNET_CIDR | default "") -}}
{{- range .Values.sources }}{{ $all = concat $all .cidrs }}{{ end -}}
{{- $all | compact | uniq | toJson -}}
{{- end }}

{{- /* The allowed ports, as a JSON list of numbers and ranges. */}}
{{- define "writer.ports" -}}
{{- $usual := splitList "," (.Values.settings.ALLOWED_PORTS | default "30000-32767" | toString) -}}
{{- $all := list -}}
{{- range .Values.sources | default (list dict) }}{{ $all = concat $all (.ports | default $usual) }}{{ end -}}
{{- with .Values.settings.TARGET_PORT }}{{ $all = append $all . }}{{ end -}}
{{- $texts := list -}}
{{- range $all }}{{ $texts = append $texts (toString .) }}{{ end -}}
{{- $texts | uniq | toJson -}}
{{- end }}

{{- /* The kinds of targets, as a list of the policies. */}}
{{- define "writer.kinds" -}}
['Service'{{ if .Values.settings.SERVICE_IMPORTS }}, 'ServiceImport'{{ end }}]
{{- end }}

{{- /* What the Role of each namespace, or the ClusterRole, allows. */}}
{{- define "writer.rules" -}}
- apiGroups: [""]
  resources: [services]
  verbs: [list, watch]
{{- if .Values.settings.SERVICE_IMPORTS }}
- apiGroups: [multicluster.x-k8s.io]
  resources: [serviceimports]
  verbs: [list, watch]
{{- end }}
# RBAC cannot select them by label; the admission policy does.
# get reads a slice again after a conflict or a write without an answer.
# delete also covers changing an owner reference where OwnerReferencesPermissionEnforcement is on.
- apiGroups: [discovery.k8s.io]
  resources: [endpointslices]
  verbs: [get, list, watch, create, update, delete]
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create, patch]
{{- end }}

{{- /* The variables that the chart sets, in the order of the Pod. */}}
{{- define "writer.ownEnv" -}}
- name: TLS_CERT_FILE
  value: /etc/slicefeed/tls/tls.crt
- name: TLS_KEY_FILE
  value: /etc/slicefeed/tls/tls.key
- name: TLS_PEER_CA_FILE
  value: /etc/slicefeed/peer-ca/ca.crt
{{- if .Values.sources }}
- name: SOURCES_FILE
  value: /etc/slicefeed/config/sources.yaml
{{- end }}
{{- if .Values.allowedClients }}
- name: LISTEN_ADDRESS
  value: ":9443"
- name: LISTEN_CERT_FILE
  value: /etc/slicefeed/listener-tls/tls.crt
- name: LISTEN_KEY_FILE
  value: /etc/slicefeed/listener-tls/tls.key
- name: CLIENT_CA_FILE
  value: /etc/slicefeed/client-ca/ca.crt
- name: ALLOWED_CLIENTS_FILE
  value: /etc/slicefeed/config/clients.yaml
{{- end }}
{{- with include "slicefeed.gomemlimit" . }}
- name: GOMEMLIMIT
  value: {{ . }}
{{- end }}
{{- range $name, $value := .Values.settings }}
- name: {{ $name }}
  value: {{ $value | quote }}
{{- end }}
{{- end }}

{{- define "writer.env" -}}
{{ include "writer.ownEnv" . }}
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "writer.volumeMounts" -}}
- name: tls
  mountPath: /etc/slicefeed/tls
  readOnly: true
- name: peer-ca
  mountPath: /etc/slicefeed/peer-ca
  readOnly: true
{{- if or .Values.sources .Values.allowedClients }}
- name: config
  mountPath: /etc/slicefeed/config
  readOnly: true
{{- end }}
{{- if .Values.allowedClients }}
- name: listener-tls
  mountPath: /etc/slicefeed/listener-tls
  readOnly: true
- name: client-ca
  mountPath: /etc/slicefeed/client-ca
  readOnly: true
{{- end }}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "writer.volumes" -}}
- name: tls
  secret:
    secretName: {{ .Values.tls.secret }}
    optional: true
    defaultMode: 0440
- name: peer-ca
  configMap:
    name: {{ .Values.tls.peerCA }}
    optional: true
    defaultMode: 0644
{{- if or .Values.sources .Values.allowedClients }}
- name: config
  configMap:
    name: {{ include "slicefeed.fullname" . }}
    defaultMode: 0644
{{- end }}
{{- if .Values.allowedClients }}
- name: listener-tls
  secret:
    secretName: {{ .Values.listener.secret }}
    optional: true
    defaultMode: 0440
- name: client-ca
  configMap:
    name: {{ .Values.listener.clientCA }}
    optional: true
    defaultMode: 0644
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* Checks across several values, all reported in one failure. The program reports the same, but from a Pod. */}}
{{- define "writer.validate" -}}
{{- $s := .Values.settings -}}
{{- $wrong := list -}}
{{- range $name, $what := dict "INVENTORY_ADDRESS" "host:port of the inventory" "INVENTORY_SAN" "the name in the inventory's certificate" "SECURED_SUBNET_CIDR" "the nodes' private network, such as 10.0.1.0/24" -}}
{{- if and (not (index $s $name)) (not $.Values.sources) -}}
{{- $wrong = append $wrong (printf "settings.%s is not set: want %s, or sources" $name $what) -}}
{{- else if and (index $s $name) $.Values.sources -}}
{{- $wrong = append $wrong (printf "settings.%s is set: remove it, since each entry of sources has its own" $name) -}}
{{- end -}}
{{- end -}}
{{- if or $s.TARGET_NAMESPACE $s.TARGET_SERVICE_NAME -}}
{{- range list "TARGET_NAMESPACE" "TARGET_SERVICE_NAME" -}}
{{- if not (index $s .) -}}
{{- $wrong = append $wrong (printf "settings.%s is not set: a named target needs both a namespace and a name" .) -}}
{{- end -}}
{{- end -}}
{{- else -}}
{{- range list "TARGET_ENDPOINTSLICE_NAME" "TARGET_MANAGED_BY" "TARGET_PORT" -}}
{{- if index $s . -}}
{{- $wrong = append $wrong (printf "settings.%s is set: it has no effect without TARGET_NAMESPACE and TARGET_SERVICE_NAME" .) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and (include "writer.everywhere" .) (ne $s.WATCH_NAMESPACES "*") -}}
{{- $wrong = append $wrong (printf "settings.WATCH_NAMESPACES is %s: want * alone, which is all namespaces" $s.WATCH_NAMESPACES) -}}
{{- end -}}
{{- if and .Values.policy.enabled (include "writer.everywhere" .) (not .Values.policy.namespaces) -}}
{{- $wrong = append $wrong "policy.namespaces is empty: want the namespaces that the writer may write in, since settings.WATCH_NAMESPACES is * and the policy knows no *" -}}
{{- else if and .Values.policy.namespaces (not (include "writer.everywhere" .)) -}}
{{- $wrong = append $wrong "policy.namespaces is set: it has no effect unless settings.WATCH_NAMESPACES is *" -}}
{{- end -}}
{{- if and .Values.tls.certificate.issuerRef (not .Values.tls.certificate.uris) (not .Values.tls.certificate.dnsNames) -}}
{{- $wrong = append $wrong "tls.certificate has an issuerRef and no name: want the name from the inventory's ALLOWED_CLIENTS_FILE in uris or dnsNames" -}}
{{- end -}}
{{- $wrong = concat $wrong (include "slicefeed.problems" (dict "root" . "env" (include "writer.ownEnv" . | fromYamlArray) "foreign" (list "IONOS_TOKEN" "IONOS_TOKEN_FILE" "IONOS_USERNAME" "IONOS_PASSWORD" "SECURED_KUBECONFIG")) | fromJsonArray) -}}
{{- if $wrong }}{{ fail (printf "invalid values:\n- %s\n" (join "\n- " $wrong)) }}{{ end -}}
{{- end }}
