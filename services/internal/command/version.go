package command

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// Version returns the version that the linker set. If that is empty, as with go install, it returns the
// version of the module.
func Version(linked string) string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "(devel)" {
		linked = cmp.Or(linked, info.Main.Version)
	}
	return cmp.Or(linked, "unknown")
}

// Commit returns the commit that the linker set, or else the one from the checkout, or nothing if neither
// is known. There is no build date, so that two builds of one commit are identical.
func Commit(linked string) string {
	commit := cmp.Or(linked, buildSetting("vcs.revision"))
	if linked == "" && buildSetting("vcs.modified") == "true" {
		commit += ", modified"
	}
	return commit
}

// versionText has the version of a program, the commit if it is known, and the toolchain.
func versionText(name, version, commit string) string {
	text := name + " " + version + "\n"
	if commit != "" {
		text += "commit " + commit + "\n"
	}
	return text + fmt.Sprintf("%s %s/%s\n", runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// NewRegistry returns an empty registry and what registers in it: each metric gets the label cluster, unless its value
// is empty. The metrics of the process and of the build are registered.
func NewRegistry(component, version, cluster string) (*prometheus.Registry, prometheus.Registerer) {
	registry := prometheus.NewRegistry()
	registerer := prometheus.Registerer(registry)
	if cluster != "" {
		registerer = prometheus.WrapRegistererWith(prometheus.Labels{"cluster": cluster}, registry)
	}
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Namespace: "slicefeed", Subsystem: component, Name: "build_info",
		Help: "1, with labels that identify the build.",
		ConstLabels: prometheus.Labels{
			"version": version, "revision": cmp.Or(buildSetting("vcs.revision"), "unknown"), "goversion": runtime.Version(),
		},
	})
	info.Set(1)
	registerer.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), info)
	return registry, registerer
}

// buildSetting returns a setting of the build, or nothing if it is unknown.
func buildSetting(key string) string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == key {
				return s.Value
			}
		}
	}
	return ""
}
