package command

import (
	"cmp"
	"runtime/debug"
)

// Version is what the build has stamped. Where it has stamped nothing, as go install does, it is
// the version of the module that was built.
func Version(stamped string) string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "(devel)" {
		stamped = cmp.Or(stamped, info.Main.Version)
	}
	return cmp.Or(stamped, "unknown")
}
