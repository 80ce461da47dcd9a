package command

import "testing"

func TestEachMetricHasTheClustersLabel(t *testing.T) {
	for _, cluster := range []string{"", "blue"} {
		registry, _ := NewRegistry("writer", "v1.2.3", cluster)
		families, err := registry.Gather()
		if err != nil || len(families) < 10 {
			t.Fatalf("%d families, %v", len(families), err)
		}
		for _, family := range families {
			for _, metric := range family.GetMetric() {
				got := ""
				for _, label := range metric.GetLabel() {
					if label.GetName() == "cluster" {
						got = label.GetValue()
					}
				}
				if got != cluster {
					t.Errorf("%s has the cluster %q, want %q", family.GetName(), got, cluster)
				}
			}
		}
	}
}
