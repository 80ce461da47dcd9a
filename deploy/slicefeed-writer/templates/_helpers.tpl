{{- define "slicefeed.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "slicefeed.labels" -}}
{{ include "slicefeed.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- /* Name, namespace and labels, which all objects of the release's namespace have. */}}
{{- define "slicefeed.metadata" -}}
name: {{ .Release.Name }}
namespace: {{ toYaml .Release.Namespace }}
labels:
  {{- include "slicefeed.labels" . | nindent 2 }}
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

{{- /* What the Role of each namespace, or the ClusterRole, allows. */}}
{{- define "writer.rules" -}}
- apiGroups: [""]
  resources: [services]
  verbs: [list, watch]
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
{{- if $wrong }}{{ fail (printf "invalid values:\n- %s\n" (join "\n- " $wrong)) }}{{ end -}}
{{- end }}
