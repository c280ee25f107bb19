{{/* The first part of all names. */}}
{{- define "tidelog.name" -}}
{{- if contains "tidelog" .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-tidelog" .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* Labels of a part: (dict "root" $ "component" "broker"). Selectors use them too, so that they
never change. */}}
{{- define "tidelog.labels" -}}
app.kubernetes.io/part-of: tidelog
app.kubernetes.io/instance: {{ .root.Release.Name }}
{{- with .component }}
app.kubernetes.io/component: {{ . }}
{{- end }}
{{- end -}}

{{/* The image of a part: (dict "root" $ "image" .Values.broker.image). A digest pins the content,
whatever the tag becomes. */}}
{{- define "tidelog.image" -}}
{{- $images := .root.Values.images -}}
{{- $name := .image.repository -}}
{{- if $images.registry -}}
{{- $name = printf "%s/%s" (trimSuffix "/" $images.registry) $name -}}
{{- end -}}
{{- if .image.digest -}}
{{- printf "%s@%s" $name .image.digest -}}
{{- else if $images.requireDigests -}}
{{- fail (printf "images.requireDigests is true, and image %s has no digest; set it to sha256:..." .image.repository) -}}
{{- else -}}
{{- printf "%s:%s" $name (default .root.Chart.AppVersion $images.tag) -}}
{{- end -}}
{{- end -}}

{{/* Settings as variables: (dict "settings" .Values.broker.settings). */}}
{{- define "tidelog.settings" -}}
{{- range $key, $value := .settings }}
- name: TIDELOG_{{ upper $key }}
  {{- /* Numbers of values are floating-point numbers; a large one must not become 1e+06. */}}
  value: {{ if kindIs "float64" $value }}{{ if eq (floor $value) $value }}{{ printf "%.0f" $value | quote }}{{ else }}{{ toString $value | quote }}{{ end }}{{ else }}{{ toString $value | quote }}{{ end }}
{{- end }}
{{- end -}}

{{/* The StatefulSets of brokers, as a YAML list of name, zone, first (broker id) and replicas. A
broker's id is its pod's ordinal. */}}
{{- define "tidelog.brokerSets" -}}
{{- $name := include "tidelog.name" . -}}
{{- if .Values.broker.zones -}}
{{- $used := dict -}}
{{- range .Values.broker.zones }}
{{- $set := printf "%s-broker-%s" $name .name }}
- {name: {{ $set }}, zone: {{ .zone | quote }}, first: {{ int .firstBrokerId }}, replicas: {{ int .replicas }}}
{{- end }}
{{- range .Values.broker.zones }}
{{- $zone := . }}
{{- range $index := until (int .replicas) }}
{{- $id := toString (add (int $zone.firstBrokerId) $index) }}
{{- if hasKey $used $id }}
{{- fail (printf "broker.zones: zones %s and %s would both have a broker %s; leave more room between their firstBrokerId" (get $used $id) $zone.name $id) }}
{{- end }}
{{- $_ := set $used $id $zone.name }}
{{- end }}
{{- end }}
{{- else }}
- {name: {{ $name }}-broker, zone: "", first: 0, replicas: {{ int .Values.broker.replicas }}}
{{- end -}}
{{- end -}}

{{/* host:port of every broker inside the cluster, with commas. */}}
{{- define "tidelog.bootstrap" -}}
{{- $name := include "tidelog.name" . -}}
{{- $addresses := list -}}
{{- range (include "tidelog.brokerSets" . | fromYamlArray) -}}
{{- $set := . -}}
{{- range $index := until (int .replicas) -}}
{{- $addresses = append $addresses (printf "%s-%d.%s-brokers:7500" $set.name (add (int $set.first) $index) $name) -}}
{{- end -}}
{{- end -}}
{{- join "," $addresses -}}
{{- end -}}

{{/* What clients outside reach, as a YAML list, if external.enabled: role, id, config (name of its
configuration), service (last part of its Service's name), pod, port, nodePort, address. Controllers
are in it if external.controllers.address is set. */}}
{{- define "tidelog.external" -}}
{{- $name := include "tidelog.name" . -}}
{{- $external := .Values.external -}}
{{- $isNodePort := eq $external.type "NodePort" -}}
{{- $position := 0 -}}
{{- range (include "tidelog.brokerSets" . | fromYamlArray) -}}
{{- $set := . -}}
{{- range $index := until (int .replicas) -}}
{{- $id := toString (add (int $set.first) $index) -}}
{{- $nodePort := add (int $external.firstNodePort) $position -}}
{{- $port := ternary $nodePort (int $external.port) $isNodePort }}
- {role: broker, id: {{ $id | quote }}, config: broker-{{ $id }}, service: {{ $id | quote }}, pod: {{ $set.name }}-{{ $id }}, port: {{ int $external.port }}, nodePort: {{ $nodePort }}, address: {{ $external.address | replace "{id}" $id | replace "{port}" (toString $port) | quote }}}
{{- $position = add $position 1 -}}
{{- end -}}
{{- end -}}
{{- $controllers := $external.controllers -}}
{{- if $controllers.address -}}
{{- range $index := until (int .Values.controller.replicas) -}}
{{- $id := toString $index -}}
{{- $nodePort := add (int $controllers.firstNodePort) $index -}}
{{- $port := ternary $nodePort (int $controllers.port) $isNodePort }}
- {role: controller, id: {{ $id | quote }}, config: controller-{{ $id }}, service: controller-{{ $id }}, pod: {{ $name }}-controller-{{ $id }}, port: {{ int $controllers.port }}, nodePort: {{ $nodePort }}, address: {{ $controllers.address | replace "{id}" $id | replace "{port}" (toString $port) | quote }}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Not empty: controllers have addresses outside. */}}
{{- define "tidelog.controllersAreExternal" -}}
{{- if and .Values.external.enabled .Values.external.controllers.address -}}true{{- end -}}
{{- end -}}

{{/* Hash of the configuration whose change restarts a part: (dict "root" $ "external" values), with
the values by which its address outside is made; empty: it has none. */}}
{{- define "tidelog.configurationHash" -}}
{{- $values := .root.Values -}}
{{- list $values.cluster $values.etcd.endpoints $values.logLevel .external | toJson | sha256sum | trunc 16 -}}
{{- end -}}

{{/* A size of Gi or Ti in Gi; empty: another unit. */}}
{{- define "tidelog.gibibytes" -}}
{{- if hasSuffix "Gi" . -}}
{{- trimSuffix "Gi" . -}}
{{- else if hasSuffix "Ti" . -}}
{{- mul 1024 (int64 (trimSuffix "Ti" .)) -}}
{{- end -}}
{{- end -}}

{{/* The size in a StatefulSet's claim template, which Kubernetes never lets change:
(dict "name" set "present" size "requested" size). A volume is never shrunk, and is grown by its claim. */}}
{{- define "tidelog.storage" -}}
{{- $present := include "tidelog.gibibytes" .present -}}
{{- $requested := include "tidelog.gibibytes" .requested -}}
{{- if and $present $requested (lt (int64 $requested) (int64 $present)) -}}
{{- fail (printf "broker.storage.size is %s, and volumes of StatefulSet %s have %s: a volume cannot shrink; set at least %s, or move brokers to a new zone" .requested .name .present .present) -}}
{{- end -}}
{{- default .requested .present -}}
{{- end -}}

{{/* The size of the claims of a StatefulSet that runs; empty: there is none. */}}
{{- define "tidelog.presentStorage" -}}
{{- $set := lookup "apps/v1" "StatefulSet" .namespace .name -}}
{{- if $set -}}
{{- (index $set.spec.volumeClaimTemplates 0).spec.resources.requests.storage -}}
{{- end -}}
{{- end -}}

{{- define "tidelog.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "tidelog.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{/* Ready once it serves. Alive while it answers anything: Kubernetes' own gRPC probe asks for more,
and would kill a service that waits for etcd or reads its logs. */}}
{{- define "tidelog.grpcProbes" -}}
readinessProbe:
  grpc: {port: {{ . }}}
  periodSeconds: 5
  timeoutSeconds: 4
startupProbe:
  exec:
    command: [python, -m, tidelog_runtime.health_check, grpc, --alive]
  periodSeconds: 5
  timeoutSeconds: 5
  failureThreshold: 24
livenessProbe:
  exec:
    command: [python, -m, tidelog_runtime.health_check, grpc, --alive]
  periodSeconds: 20
  timeoutSeconds: 5
  failureThreshold: 3
{{- end -}}

{{/* What pods of all parts have: (dict "root" $ "part" .Values.broker). */}}
{{- define "tidelog.scheduling" -}}
{{- with .root.Values.images.pullSecrets }}
imagePullSecrets:
{{- range . }}
  - name: {{ . }}
{{- end }}
{{- end }}
{{- with .part.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .part.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "tidelog.spread" -}}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels: {{- include "tidelog.labels" . | nindent 8 }}
{{- end -}}
