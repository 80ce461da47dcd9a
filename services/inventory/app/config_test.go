package app

import (
	"errors"
	"log/slog"
	"os"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slicefeed/slicefeed/services/internal/settings"
)

func TestEveryKindOfSourceIsCreatedAndTested(t *testing.T) {
	suite, err := os.ReadFile("../sourcetest/sourcetest_test.go")
	if err != nil {
		t.Fatal(err)
	}
	kinds := 0
	for _, f := range settings.List(&Config{}) {
		if f.Flag != "source-kind" {
			continue
		}
		for _, kind := range f.Enum {
			kinds++
			cfg := &Config{
				SourceKind:    kind,
				RecordsFile:   "nodes.json",
				Command:       "cat",
				StaticRecords: "[]",
				SourceService: "shop/web",
			}
			_, err := newSource(cfg, "test", slog.New(slog.DiscardHandler), prometheus.NewRegistry())
			if problem := (*settings.Problem)(nil); errors.As(err, &problem) && problem.Setting == "SOURCE_KIND" {
				t.Errorf("%s: newSource creates no source of this kind", kind)
			}
			if test := "func Test" + strings.ToUpper(kind[:1]) + kind[1:] + "("; !strings.Contains(string(suite), test) {
				t.Errorf("%s: sourcetest_test.go has no %s) that runs the suite of all sources", kind, test)
			}
		}
	}
	if kinds < 5 {
		t.Errorf("SOURCE_KIND has %d values, want at least 5", kinds)
	}
}
