package targets

import (
	"time"

	"github.com/slicefeed/slicefeed/services/writer/probe"
)

var shop = Key{Namespace: "web", Name: "shop"}

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
		Sources: []Source{{Name: "default"}},
	}
}

// configWithNamedTarget returns a writer that also has a named target.
func configWithNamedTarget() Config {
	cfg := newConfig()
	cfg.NamedTarget = Target{Key: Key{Namespace: "web", Name: "shop"}, FirstName: "shop-nodes"}
	return cfg
}
