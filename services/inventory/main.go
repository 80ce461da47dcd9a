// Command inventory publishes the worker nodes of a secured cluster and their private addresses.
//
// The life of one change: a source (package kube, kubeservice or records) reports a node. Package collector, the
// event loop, passes the update to package roster, which finds the node's server, in a listing of the cloud that
// package ionos reads, and its private addresses, gives each address to one node, and decides how far this can be
// trusted, and what to request next. Package feed makes a changed node a change of the set, and sends every subscriber
// what is new to it.
//
// Package app creates these stages in this order. Start with package roster: the others serve it.
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
