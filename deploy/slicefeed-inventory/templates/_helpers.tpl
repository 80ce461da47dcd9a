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

{{- define "inventory.kind" -}}{{ .Values.settings.SOURCE_KIND | default "kubernetes" }}{{- end }}

{{- /* "yes" if the inventory uses the API server of the secured cluster. */}}
{{- define "inventory.cluster" -}}
{{- if has (include "inventory.kind" .) (list "kubernetes" "service") }}yes{{ end -}}
{{- end }}

{{- /* "yes" if the inventory uses the IONOS API. */}}
{{- define "inventory.cloud" -}}
{{- if and (eq (include "inventory.kind" .) "kubernetes") (eq (.Values.settings.RESOLVER | default "ionos") "ionos") }}yes{{ end -}}
{{- end }}

{{- /* Checks across several values, all reported in one failure. The program reports the same, but from a Pod. */}}
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
{{- range $name, $of := dict "NODE_SELECTOR" "kubernetes" "WORKLOAD" "kubernetes" "SOURCE_SERVICE" "service" "INVENTORY_STATIC" "static" -}}
{{- if and (index $s $name) (ne $kind $of) -}}
{{- $wrong = append $wrong (printf "settings.%s is set: it has no effect with SOURCE_KIND=%s, only with %s" $name $kind $of) -}}
{{- end -}}
{{- end -}}
{{- if and (eq $kind "service") (not $s.SOURCE_SERVICE) -}}
{{- $wrong = append $wrong "settings.SOURCE_SERVICE is not set: want the Service to follow, such as shop/web, since SOURCE_KIND is service" -}}
{{- end -}}
{{- if and (eq $kind "static") (not $s.INVENTORY_STATIC) -}}
{{- $wrong = append $wrong "settings.INVENTORY_STATIC is not set: want the records as JSON, since SOURCE_KIND is static" -}}
{{- end -}}
{{- if not .Values.allowedClients -}}
{{- $wrong = append $wrong "allowedClients is empty, so no client could connect: want a list with a san and a role each" -}}
{{- end -}}
{{- if and .Values.service.nodePort (ne .Values.service.type "NodePort") -}}
{{- $wrong = append $wrong (printf "service.nodePort is set: it has no effect with service.type %s" .Values.service.type) -}}
{{- end -}}
{{- if $wrong }}{{ fail (printf "invalid values:\n- %s\n" (join "\n- " $wrong)) }}{{ end -}}
{{- end }}
