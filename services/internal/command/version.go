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

// Commit is what the build has stamped, or what Go has found in the checkout; empty when neither
// knows. There is no date beside it: two builds of one commit are the same bytes.
func Commit(stamped string) string {
	if stamped != "" {
		return stamped
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	found := map[string]string{}
	for _, s := range info.Settings {
		found[s.Key] = s.Value
	}
	if found["vcs.modified"] == "true" {
		return found["vcs.revision"] + ", modified"
	}
	return found["vcs.revision"]
}
