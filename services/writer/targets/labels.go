package targets

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Labels of a Service beyond these are not copied to its slices: each slice repeats them, and each of its changes
// goes to every node of the cluster.
const (
	maxLabels     = 32
	maxLabelBytes = 8 << 10
)

// reservedDomains are those whose labels mean something to whoever reads slices, of which only the writer's own
// are true.
var reservedDomains = []string{"kubernetes.io", "k8s.io", "slicefeed.dev"}

// copyLabels are the labels of a Service that its slices get, in the order of their keys as long as there is room.
func copyLabels(labels map[string]string) map[string]string {
	var copied map[string]string
	room := maxLabelBytes
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		if isReservedLabel(key) {
			continue
		}
		if room -= len(key) + len(labels[key]); room < 0 || len(copied) == maxLabels {
			break
		}
		if copied == nil {
			copied = map[string]string{}
		}
		copied[key] = labels[key]
	}
	return copied
}

func isReservedLabel(key string) bool {
	domain, _, prefixed := strings.Cut(key, "/")
	return prefixed && slices.ContainsFunc(reservedDomains, func(reserved string) bool {
		return domain == reserved || strings.HasSuffix(domain, "."+reserved)
	})
}

// isHeadless reports whether the Service has no cluster IP. The in-tree controller takes an empty one for none too,
// which only Services of type ExternalName have, and those are rejected.
func isHeadless(svc *corev1.ServiceSpec) bool { return svc.ClusterIP == corev1.ClusterIPNone }
