package app

import (
	"slices"
	"testing"

	"github.com/slicefeed/slicefeed/services/internal/settings"
	"github.com/slicefeed/slicefeed/services/internal/testkit"
	"github.com/slicefeed/slicefeed/services/writer/probe"
	"github.com/slicefeed/slicefeed/services/writer/targets"
)

// The setting's values are a struct tag, so only a test can compare them.
func TestProbeModesMatchSetting(t *testing.T) {
	var want []string
	for _, mode := range probe.Modes() {
		want = append(want, mode.String())
	}
	for _, f := range settings.List(&Config{}) {
		if f.Flag == "health-check-mode" && !slices.Equal(f.Enum, want) {
			t.Errorf("HEALTH_CHECK_MODE accepts %v, want the modes of package probe: %v", f.Enum, want)
		}
	}
}

func TestDerivesNamesFromClassAndService(t *testing.T) {
	cfg, err := testkit.LoadEnv[Config](testkit.WriterEnv(), map[string]string{"CLASS": "blue"})
	if err != nil {
		t.Fatal(err)
	}
	found, err := cfg.TargetsConfig("slicefeed", nil)
	if err != nil {
		t.Fatal(err)
	}
	named, _ := targets.Resolve(found, targets.Input{Key: targets.Key{Namespace: "web", Name: "shop"}})
	if named.State == targets.Gone || named.ManagedBy != "slicefeed-blue" || named.FirstName != "shop-slicefeed" {
		t.Errorf("%+v", named)
	}
}

func TestWatchedNamespaces(t *testing.T) {
	for _, tt := range []struct {
		set  map[string]string
		want []string
	}{
		{nil, []string{"slicefeed", "web"}},
		{map[string]string{"TARGET_NAMESPACE": "slicefeed"}, []string{"slicefeed"}},
		{map[string]string{"TARGET_NAMESPACE": "", "TARGET_SERVICE_NAME": ""}, []string{"slicefeed"}},
		{map[string]string{"WATCH_NAMESPACES": "b,a,b", "TARGET_NAMESPACE": "", "TARGET_SERVICE_NAME": ""}, []string{"a", "b"}},
		{map[string]string{"WATCH_NAMESPACES": "b,a,b"}, []string{"a", "b", "web"}},
		{map[string]string{"WATCH_NAMESPACES": "*"}, []string{"*"}},
	} {
		cfg, err := testkit.LoadEnv[Config](testkit.WriterEnv(), tt.set)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := cfg.TargetsConfig("slicefeed", nil); err != nil || !slices.Equal(got.Namespaces, tt.want) {
			t.Errorf("with %v: %v, %v; want %v", tt.set, got.Namespaces, err, tt.want)
		}
	}
}
