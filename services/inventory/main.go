// Command inventory runs beside the secured cluster and tells which of its workers are
// where on the private network.
package main

import (
	"os"

	// In an image of nothing else there are no CAs to verify the cloud with; where there are, these
	// do not count. The writer calls nobody whose CA it was not given.
	_ "golang.org/x/crypto/x509roots/fallback"

	"github.com/slicefeed/slicefeed/services/internal/command"
	"github.com/slicefeed/slicefeed/services/inventory/app"
)

// Both are stamped by the build.
var version, commit string

func main() {
	component := app.Component(command.Version(version))
	component.Commit = command.Commit(commit)
	os.Exit(component.Main(os.Args[1:], os.Stdout, os.Stderr))
}
