// Command inventory runs beside the secured cluster and tells which of its workers are
// where on the private network.
package main

import (
	"os"

	"github.com/slicefeed/slicefeed/services/internal/command"
	"github.com/slicefeed/slicefeed/services/inventory/app"
)

// version is stamped by the build.
var version string

func main() { os.Exit(app.Half(command.Version(version)).Main(os.Args[1:], os.Stdout, os.Stderr)) }
