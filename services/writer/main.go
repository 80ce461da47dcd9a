// Command writer runs in the consuming cluster and keeps the EndpointSlices of its Services
// pointed at the healthy nodes that inventories tell of.
package main

import (
	"os"

	"github.com/slicefeed/slicefeed/services/writer/app"
)

// version is stamped by the build.
var version = "unknown"

func main() { os.Exit(app.Half(version).Main(os.Args[1:], os.Stdout, os.Stderr)) }
