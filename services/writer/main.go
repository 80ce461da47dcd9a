// Command writer runs in the consuming cluster and keeps the EndpointSlices of its Services in
// sync with the healthy nodes of one or more inventories.
//
// A change takes this way: package subscriber receives a delta from an inventory and applies it
// to its copy of the set, package verdict decides about each address from that and from the
// results of package prober, package planner computes the EndpointSlices, and package applier
// writes them. Package control runs this loop for each Service that package targets finds.
package main

import (
	"os"

	"github.com/slicefeed/slicefeed/services/internal/command"
	"github.com/slicefeed/slicefeed/services/writer/app"
)

// Set by the linker.
var version, commit string

func main() {
	component := app.Component(command.Version(version))
	component.Commit = command.Commit(commit)
	os.Exit(component.Main(os.Args[1:], os.Stdout, os.Stderr))
}
