package app

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/slicefeed/slicefeed/services/internal/cluster"
	"github.com/slicefeed/slicefeed/services/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestCommandLineIsDocumented(t *testing.T) {
	root := Component("1.2.3").Command(func(string) string { return "" })
	if err := testkit.CheckCommands("../../../docs/reference/cli.md", root); err != nil {
		t.Error(err)
	}
	if _, _, err := root.Find([]string{cluster.PluginCommand}); err != nil {
		t.Error(err)
	}
}
