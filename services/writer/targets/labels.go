package targets

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Labels of a Service beyond these limits are not copied to its slices: every slice repeats them, and
// every change of a slice is sent to every node of the cluster.
const (
	maxLabels     = 32
	maxLabelBytes = 8 << 10
)

// reservedDomains are the domains of labels that have a meaning for readers of slices. Only the labels
// that the writer sets itself are true there.
var reservedDomains = []string{"kubernetes.io", "k8s.io", "slicefeed.dev"}

// copyLabels returns the labels of a Service that its slices get, in the order of their keys until a
// limit is reached.
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

// isHeadless reports whether the Service has no cluster IP. The in-tree controller also treats an empty
// one as none, but only Services of type ExternalName have that, and those are rejected.
func isHeadless(svc *corev1.ServiceSpec) bool { return svc.ClusterIP == corev1.ClusterIPNone }
