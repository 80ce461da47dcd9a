//go:build !linux

package netns

import (
	"fmt"
	"net/netip"
	"os"
	"runtime"
)

// Inside reports false: there are no network namespaces here. What needs none of them compiles still,
// such as the program that `make up` runs beside a Docker engine.
func Inside() bool { return false }

// Main says that the tests of a package need Linux.
func Main(interface{ Run() int }, ...netip.Addr) {
	fmt.Fprintln(os.Stderr, "network namespaces need Linux, and this is", runtime.GOOS)
	os.Exit(1)
}
