package settings_test

import (
	"fmt"
	"strings"

	"github.com/slicefeed/slicefeed/services/internal/settings"
	"github.com/slicefeed/slicefeed/services/internal/testkit"
)

// checkDocs compares the table of cfg's settings with the one in a Markdown file, between the lines
// <!-- settings:name --> and <!-- /settings:name -->.
func checkDocs(file, name string, cfg any) error {
	return testkit.CheckSection(file, "settings:"+name, func(string) string { return "\n" + renderTable(cfg) + "\n" })
}

// renderTable renders the settings of cfg, a pointer to a configuration struct, as Markdown, with one
// table per group, in the order of the fields.
func renderTable(cfg any) string {
	var b strings.Builder
	group, first := "", true
	for _, f := range settings.List(cfg) {
		if first || f.Group != group {
			if !first {
				b.WriteString("\n")
			}
			if f.Group != "" {
				fmt.Fprintf(&b, "**%s**\n\n", f.Group)
			}
			b.WriteString("| environment | flag | value | default | meaning |\n|---|---|---|---|---|\n")
		}
		group, first = f.Group, false
		flag := "`--" + f.Flag + "`"
		if f.Secret {
			flag = "none: a secret"
		}
		defaultValue := ""
		switch {
		case f.Required():
			defaultValue = "*required*"
		case f.Default != "":
			defaultValue = "`" + escapeCell(f.Default) + "`"
		}
		value, meaning := f.Expected(), f.Help
		if f.IsList() {
			value += ", several separated by commas"
		}
		if len(f.Deprecated) > 0 {
			meaning += "; deprecated names: `" + strings.Join(f.Deprecated, "`, `") + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", f.Env, flag, escapeCell(value), defaultValue, escapeCell(meaning))
	}
	return b.String()
}

func escapeCell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }
