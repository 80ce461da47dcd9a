// Command writer runs in the consuming cluster and keeps the EndpointSlices of its Services
// pointed at the healthy nodes that inventories tell of.
package main

import (
	"os"

	"github.com/slicefeed/slicefeed/services/internal/command"
	"github.com/slicefeed/slicefeed/services/writer/app"
)

// version is stamped by the build.
var version string

func main() { os.Exit(app.Half(command.Version(version)).Main(os.Args[1:], os.Stdout, os.Stderr)) }
