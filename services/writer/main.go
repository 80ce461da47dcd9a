// Command writer runs in the consuming cluster and keeps the EndpointSlices of its Services in
// sync with the healthy nodes of one or more inventories.
//
// The life of one change: package subscriber receives a delta from an inventory, checks it and applies
// it to its copy of the nodes. Package reconciler queues each Service that package targets found and that
// uses this inventory. For it, package verdict decides about each address, from what the inventory
// reported, what package prober measured and what the EndpointSlices list now. If something has to be
// written, the Service is queued again: package planner computes the fewest writes that turn the slices
// into what was decided, and package applier sends them, while package election holds the Lease. Package
// endpoints keeps the decision for people, and publishes it to the clients of the endpoint API.
//
// Package app creates these stages in this order. Start with package verdict: the others serve it.
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
