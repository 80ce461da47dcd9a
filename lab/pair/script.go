package pair

import (
	"fmt"
	"os"
	"strings"
)

// StartScript writes a script that starts the component as Start does, in the user's terminal, and returns its
// path. The component ends with that terminal; Stop does not wait for it.
func (h *Component) StartScript() (path string, err error) {
	var b strings.Builder
	fmt.Fprintf(&b, "#!/bin/sh\n# Starts %s in this terminal. Ctrl-C stops it.\ncd %s && exec env -i", h.Name, quote(h.dir))
	for _, setting := range h.Env() {
		b.WriteString(" \\\n  " + quote(setting))
	}
	b.WriteString(" \\\n  " + quote(h.program) + " serve\n")
	path = h.dir + "/start"
	return path, os.WriteFile(path, []byte(b.String()), 0o600)
}

// quote returns text as one word of a shell.
func quote(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }
