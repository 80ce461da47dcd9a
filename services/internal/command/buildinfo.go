package command

import (
	"cmp"
	"runtime"
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"
)

// BuildInfo is the metric that says which build of a half runs.
func BuildInfo(half, version string) prometheus.Collector {
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Namespace: "slicefeed", Subsystem: half, Name: "build_info",
		Help: "1; its labels say which build this is.",
		ConstLabels: prometheus.Labels{
			"version": version, "revision": vcsRevision(), "goversion": runtime.Version(),
		},
	})
	info.Set(1)
	return info
}

// vcsRevision is the commit that was built, as far as the build has noted it.
func vcsRevision() string {
	noted := ""
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				noted = s.Value
			}
		}
	}
	return cmp.Or(noted, "unknown")
}
