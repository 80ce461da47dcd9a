// Command inventory publishes the worker nodes of a secured cluster and their private addresses.
//
// A change takes this way: the source reports an update (packages kubenodes, kubeservice, records),
// the roster resolves the node's address from a listing of the cloud (package ionos) and assigns it,
// the feed turns the change into a delta for each view, and the node server sends it to the
// subscribers. Package app assembles these stages.
package main

import (
	"os"

	// The image has no CA certificates to verify the IONOS API with. Where the system has some, they
	// are used instead. The writer does not need this: every CA it uses is configured.
	_ "golang.org/x/crypto/x509roots/fallback"

	"github.com/slicefeed/slicefeed/services/internal/command"
	"github.com/slicefeed/slicefeed/services/inventory/app"
)

// Set by the linker: see .goreleaser.yaml.
var version, commit string

func main() {
	component := app.Component(command.Version(version))
	component.Commit = command.Commit(commit)
	os.Exit(component.Main(os.Args[1:], os.Stdout, os.Stderr))
}
