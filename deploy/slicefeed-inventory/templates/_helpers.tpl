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

{{- define "inventory.kind" -}}{{ .Values.settings.SOURCE_KIND | default "kubernetes" }}{{- end }}

{{- /* "yes" if the inventory uses the API server of the secured cluster. */}}
{{- define "inventory.cluster" -}}
{{- if has (include "inventory.kind" .) (list "kubernetes" "service") }}yes{{ end -}}
{{- end }}

{{- /* "yes" if the inventory uses the IONOS API. */}}
{{- define "inventory.cloud" -}}
{{- if and (eq (include "inventory.kind" .) "kubernetes") (eq (.Values.settings.RESOLVER | default "ionos") "ionos") }}yes{{ end -}}
{{- end }}

{{- /* The variables that the chart sets, in the order of the Pod. */}}
{{- define "inventory.ownEnv" -}}
{{- $cloud := include "inventory.cloud" . -}}
- name: TLS_CERT_FILE
  value: /etc/slicefeed/tls/tls.crt
- name: TLS_KEY_FILE
  value: /etc/slicefeed/tls/tls.key
- name: TLS_PEER_CA_FILE
  value: /etc/slicefeed/peer-ca/ca.crt
- name: ALLOWED_CLIENTS_FILE
  value: /etc/slicefeed/config/clients.yaml
{{- if $cloud }}
- name: IONOS_TOKEN_FILE
  value: /etc/slicefeed/ionos/token
{{- if .Values.ionos.caConfigMap }}
- name: IONOS_CA_FILE
  value: /etc/slicefeed/ionos-ca/ca.crt
{{- end }}
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

{{- define "inventory.env" -}}
{{ include "inventory.ownEnv" . }}
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "inventory.volumeMounts" -}}
{{- $cloud := include "inventory.cloud" . -}}
- name: config
  mountPath: /etc/slicefeed/config
  readOnly: true
- name: tls
  mountPath: /etc/slicefeed/tls
  readOnly: true
- name: peer-ca
  mountPath: /etc/slicefeed/peer-ca
  readOnly: true
{{- if $cloud }}
- name: ionos
  mountPath: /etc/slicefeed/ionos
  readOnly: true
{{- if .Values.ionos.caConfigMap }}
- name: ionos-ca
  mountPath: /etc/slicefeed/ionos-ca
  readOnly: true
{{- end }}
{{- end }}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "inventory.volumes" -}}
{{- $cloud := include "inventory.cloud" . -}}
- name: config
  configMap:
    name: {{ include "slicefeed.fullname" . }}
    defaultMode: 0644
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
{{- if $cloud }}
- name: ionos
  secret:
    secretName: {{ .Values.ionos.tokenSecret }}
    optional: true
    defaultMode: 0440
{{- with .Values.ionos.caConfigMap }}
- name: ionos-ca
  configMap:
    name: {{ . }}
    optional: true
    defaultMode: 0644
{{- end }}
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* Checks across several values, all reported in one failure. The program reports the same, but from a Pod. */}}
{{/* The Services that the inventory reads, by namespace; with SOURCE_SERVICE_SELECTOR it lists all of the namespace. */}}
{{- define "inventory.readServices" -}}
{{- $all := dict -}}
{{- $services := list -}}
{{- with .Values.settings.SOURCE_SERVICE }}{{ $services = append $services . }}{{ end -}}
{{- if .Values.settings.SOURCE_SERVICE_SELECTOR -}}
{{- range .Values.allowedClients }}{{ $services = concat $services (default list .services) }}{{ end -}}
{{- end -}}
{{- range $services -}}
{{- $namespace := splitList "/" . | first -}}
{{- $name := splitList "/" . | last -}}
{{- $_ := set $all $namespace (append (default list (get $all $namespace)) $name | uniq | sortAlpha) -}}
{{- end -}}
{{- toYaml $all -}}
{{- end }}
{{- define "inventory.validate" -}}
{{- $s := .Values.settings -}}
{{- $kind := include "inventory.kind" . -}}
{{- $wrong := list -}}
{{- if not $s.SECURED_SUBNET_CIDR -}}
{{- $wrong = append $wrong "settings.SECURED_SUBNET_CIDR is not set: want the nodes' private network, such as 10.0.1.0/24" -}}
{{- end -}}
{{- if include "inventory.cloud" . -}}
{{- range $name, $what := dict "IONOS_DATACENTER_ID" "the UUID of the workers' datacenter" "IONOS_PRIVATE_LAN_ID" "the number of the workers' private LAN" -}}
{{- if not (index $s $name) -}}
{{- $wrong = append $wrong (printf "settings.%s is not set: want %s, or RESOLVER=node-address, which needs no cloud API" $name $what) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $name, $of := dict "NODE_SELECTOR" "kubernetes" "EXPORT_LABELS" "kubernetes" "WORKLOAD" "kubernetes" "SOURCE_SERVICE" "service" "SOURCE_SERVICE_SELECTOR" "service" "INVENTORY_STATIC" "static" "INVENTORY_FILE_PATH" "file" "INVENTORY_COMMAND" "command" "INVENTORY_COMMAND_ARGS" "command" -}}
{{- if and (index $s $name) (ne $kind $of) -}}
{{- $wrong = append $wrong (printf "settings.%s is set: it has no effect with SOURCE_KIND=%s, only with %s" $name $kind $of) -}}
{{- end -}}
{{- end -}}
{{- range $of, $needed := dict "service" (list "SOURCE_SERVICE" "the Service to follow, such as shop/web") "static" (list "INVENTORY_STATIC" "the records as JSON") "file" (list "INVENTORY_FILE_PATH" "the file with the records, in one of extraVolumeMounts") "command" (list "INVENTORY_COMMAND" "the program that prints the records, in an image of your own") -}}
{{- if and (eq $kind $of) (not (index $s (first $needed))) (not $s.SOURCE_SERVICE_SELECTOR) -}}
{{- $wrong = append $wrong (printf "settings.%s is not set: want %s, since SOURCE_KIND is %s" (first $needed) (last $needed) $kind) -}}
{{- end -}}
{{- end -}}
{{- if not .Values.allowedClients -}}
{{- $wrong = append $wrong "allowedClients is empty, so no client could connect: want a list with a san and a role each" -}}
{{- end -}}
{{- if and $s.SOURCE_SERVICE $s.SOURCE_SERVICE_SELECTOR -}}
{{- $wrong = append $wrong "settings.SOURCE_SERVICE and settings.SOURCE_SERVICE_SELECTOR are set: want one of them" -}}
{{- end -}}
{{- if and $s.SOURCE_SERVICE_SELECTOR (not (include "inventory.readServices" . | fromYaml)) -}}
{{- $wrong = append $wrong "no client in allowedClients has services, so none may see an exported Service: want services such as [shop/web]" -}}
{{- end -}}
{{- if and .Values.service.nodePort (ne .Values.service.type "NodePort") -}}
{{- $wrong = append $wrong (printf "service.nodePort is set: it has no effect with service.type %s" .Values.service.type) -}}
{{- end -}}
{{- $wrong = concat $wrong (include "slicefeed.problems" (dict "root" . "env" (include "inventory.ownEnv" . | fromYamlArray) "foreign" (list "TARGET_KUBECONFIG")) | fromJsonArray) -}}
{{- if $wrong }}{{ fail (printf "invalid values:\n- %s\n" (join "\n- " $wrong)) }}{{ end -}}
{{- end }}
