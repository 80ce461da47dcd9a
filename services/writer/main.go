// Command writer runs in the consuming cluster and keeps the EndpointSlices of its Services
// pointed at the healthy nodes that inventories tell of.
package main

import (
	"os"

	"github.com/slicefeed/slicefeed/services/internal/command"
	"github.com/slicefeed/slicefeed/services/writer/app"
)

// Both are stamped by the build.
var version, commit string

func main() {
	component := app.Component(command.Version(version))
	component.Commit = command.Commit(commit)
	os.Exit(component.Main(os.Args[1:], os.Stdout, os.Stderr))
}
