package targets

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCopiesServiceLabelsUpToLimits(t *testing.T) {
	many, long, proxied := map[string]string{}, map[string]string{}, map[string]string{labelServiceProxyName: "other-proxy"}
	for i := range maxLabels + 5 {
		many[fmt.Sprintf("l-%02d", i)] = "x"
		proxied[fmt.Sprintf("l-%02d", i)] = "x"
		long[fmt.Sprintf("%s.example/l-%02d", strings.Repeat("a", 240), i)] = strings.Repeat("v", 60)
	}
	for name, c := range map[string]struct {
		labels map[string]string
		want   []string // keys
	}{
		"none": {nil, nil},
		"those of reserved domains are not": {map[string]string{
			"app": "shop", "example.org/team": "a", "mykubernetes.io/a": "b", "kubernetes.io": "no domain",
			"kubernetes.io/service-name": "other", "app.kubernetes.io/name": "shop", "service.kubernetes.io/headless": "",
			"k8s.io/a": "b", "x.k8s.io/a": "b", LabelClass: "default", "a.slicefeed.dev/b": "c",
		}, []string{"app", "example.org/team", "kubernetes.io", "mykubernetes.io/a"}},
		"the proxy of the Service, in any case": {proxied, append(slices.Sorted(maps.Keys(many))[:maxLabels-1], labelServiceProxyName)},
		"32 of them":                            {many, slices.Sorted(maps.Keys(many))[:maxLabels]},
		"8 KiB of them":                         {long, slices.Sorted(maps.Keys(long))[:maxLabelBytes/(240+len(".example/l-00")+60)]},
	} {
		t.Run(name, func(t *testing.T) {
			got := copyLabels(c.labels)
			if diff := cmp.Diff(c.want, slices.Sorted(maps.Keys(got))); diff != "" {
				t.Errorf("copied (-want +got):\n%s", diff)
			}
			for key, value := range got {
				if c.labels[key] != value {
					t.Errorf("%s is %q, want %q", key, value, c.labels[key])
				}
			}
		})
	}
}
