package command

import (
	"cmp"
	"runtime"
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"
)

// BuildInfo returns the metric that identifies the running build of a component.
func BuildInfo(component, version string) prometheus.Collector {
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Namespace: "slicefeed", Subsystem: component, Name: "build_info",
		Help: "1, with labels that identify the build.",
		ConstLabels: prometheus.Labels{
			"version": version, "revision": vcsCommit(), "goversion": runtime.Version(),
		},
	})
	info.Set(1)
	return info
}

// vcsCommit returns the commit from the build information, or unknown.
func vcsCommit() string {
	commit := ""
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				commit = s.Value
			}
		}
	}
	return cmp.Or(commit, "unknown")
}
