package targets

import (
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/slicefeed/slicefeed/services/writer/probe"
	"github.com/slicefeed/slicefeed/services/writer/sources"
)

var shop = Key{Namespace: "web", Name: "shop"}

var anyPort = ports(1, 65535)

func ports(first, last uint16) []sources.PortRange {
	return []sources.PortRange{{First: first, Last: last}}
}

func defaultSettings() Settings {
	return Settings{
		Probe:       probe.Spec{Mode: probe.TCP, Path: "/", Interval: 2 * time.Second, Timeout: time.Second},
		ListUnready: true,
	}
}

// newConfig returns a writer with one source.
func newConfig() Config {
	return Config{
		Class: "default", Writer: "slicefeed", Namespaces: []string{"web"}, Defaults: defaultSettings(),
		Sources: []sources.Source{{Name: "default", Ports: anyPort}},
	}
}

// configWithNamedTarget returns a writer that also has a named target.
func configWithNamedTarget() Config {
	cfg := newConfig()
	cfg.NamedTarget = Target{Key: Key{Namespace: "web", Name: "shop"}, FirstName: "shop-nodes"}
	return cfg
}

// indexKeys returns the targets that a slice affects, and then its owners.
func indexKeys(cfg Config, slice *discoveryv1.EndpointSlice) (all []string) {
	keys, owners := cfg.affected(slice)
	for _, key := range keys {
		all = append(all, key.String())
	}
	return append(all, owners...)
}
