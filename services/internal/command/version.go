package command

import (
	"cmp"
	"runtime/debug"
)

// Version returns the version that the linker set. If that is empty, as with go install, it returns the
// version of the module.
func Version(linked string) string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "(devel)" {
		linked = cmp.Or(linked, info.Main.Version)
	}
	return cmp.Or(linked, "unknown")
}

// Commit returns the commit that the linker set, or else the one from the checkout, or nothing if neither
// is known. There is no build date, so that two builds of one commit are identical.
func Commit(linked string) string {
	if linked != "" {
		return linked
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	buildSettings := map[string]string{}
	for _, s := range info.Settings {
		buildSettings[s.Key] = s.Value
	}
	if buildSettings["vcs.modified"] == "true" {
		return buildSettings["vcs.revision"] + ", modified"
	}
	return buildSettings["vcs.revision"]
}
