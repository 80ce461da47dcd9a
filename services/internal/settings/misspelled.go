package settings

import (
	"fmt"
	"slices"
	"strings"
)

// Misspelled returns a warning about each variable of an environment that is no setting of cfg, but whose name differs from
// one in no more than two letters side by side. It knows the links to Services of Kubernetes, such as TARGETS_PORT, by
// their values.
func Misspelled(environ []string, cfg any) (warnings []string) {
	var names []string
	for _, f := range List(cfg) {
		names = append(append(names, f.Env), f.Deprecated...)
	}
	for _, variable := range environ {
		name, value, _ := strings.Cut(variable, "=")
		isLink := strings.Contains(value, "://") && strings.HasSuffix(name, "_PORT")
		at := slices.IndexFunc(names, func(setting string) bool { return isNear(name, setting) })
		if at >= 0 && !isLink && !slices.Contains(names, name) {
			warnings = append(warnings, fmt.Sprintf("%s is not a setting; did you mean %s?", name, names[at]))
		}
	}
	return warnings
}

// isNear reports whether at most two letters of each name are left without their common beginning and end.
func isNear(a, b string) bool {
	for a != "" && b != "" && a[0] == b[0] {
		a, b = a[1:], b[1:]
	}
	for a != "" && b != "" && a[len(a)-1] == b[len(b)-1] {
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	return len(a) <= 2 && len(b) <= 2
}
