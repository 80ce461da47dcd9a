package app

import (
	"testing"

	"github.com/slicefeed/slicefeed/services/internal/command/commandtest"
)

func TestCommandLineIsDocumented(t *testing.T) {
	root := Component("1.2.3").Command(func(string) string { return "" })
	if err := commandtest.CheckDocs("../../../docs/reference/cli.md", root, *update); err != nil {
		t.Error(err)
	}
}
